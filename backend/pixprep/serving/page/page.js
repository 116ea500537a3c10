"use strict";
// maximum number of photos; number of concurrent requests; number of models from which a filter is shown
const MAX_PHOTOS = 1000, MAX_CONCURRENT = 2, MANY_MODELS = 12;
const SUFFIXES = /\.(jpe?g|png|webp|bmp|tiff?|gif)$/i;
const $ = id => document.getElementById(id);
let models = [], chosen = [], photos = [];
let turn = 0;  // increases with each selection; results of requests from an earlier turn are ignored
// An entry of `photos` has the files of one request: one file per image input of the model.

// DOM elements. Text is inserted as text nodes and never parsed as HTML.
function make(tag, attributes = {}, ...children) {
  const svg = ["svg", "path"].includes(tag);
  const element = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}
function bar(share, best) {
  const inner = make("i");
  inner.style.width = `${100 * Math.min(1, Math.max(0, share))}%`;
  return make("span", {class: best ? "bar best" : "bar"}, inner);
}
const short = (value, digits = 4) => typeof value === "number" ? String(Number(value.toPrecision(digits))) : value;
const ms = value => `${value.toFixed(value < 9.95 ? 2 : 1)} ms`;
const bytes = count => count < 1e6 ? `${Math.ceil(count / 1e3)} kB` : `${(count / 1e6).toFixed(1)} MB`;
const percent = share => `${(100 * share).toFixed(share < 0.0995 ? 1 : 0)} %`;

function say(text, isWrong = false) {
  $("status").textContent = text;
  $("status").className = isWrong ? "wrong" : "";
}

// Requests
async function ask(path, body) {
  let response;
  try {
    response = await fetch(path, body && {
      method: "POST", headers: {"Content-Type": "application/octet-stream"}, body,
    });
  } catch {
    throw new Error("no response: check that pixprep serve is running, and that the file still exists");
  }
  const data = await response.json();
  if (!response.ok) throw new Error(data.error);
  return data;
}
const theModel = () => models.find(entry => entry.name === $("model").value);
async function send(path, files, fields = []) {
  const model = theModel();
  if (!model) throw new Error(models.length ? "no model matches the filter" : "no model accepts photos");
  for (const file of files) {
    if (file.size > model.limit_bytes) {
      throw new Error(`the photo has ${bytes(file.size)}; the limit of this model is ${bytes(model.limit_bytes)}`);
    }
  }
  const query = [["model", model.name], ...fields, ...files.map(file => ["name", file.name])];
  if (files.length > 1) query.push(...files.map(file => ["length", file.size]));
  return ask(`${path}?${new URLSearchParams(query)}`, files.length > 1 ? new Blob(files) : files[0]);
}
async function findModels() {
  try {
    ({models} = await ask("/models"));
  } catch (error) {
    say(error.message, true);
    setTimeout(findModels, 2000);
    return;
  }
  $("filter").hidden = models.length <= MANY_MODELS;
  fillMenu();
  say(models.length ? "" : "None of the served models accepts photos.", !models.length);
}

function fillMenu() {  // shows the models whose names contain every word of the filter, ensembles first
  const words = $("filter").value.toLowerCase().split(/\s+/).filter(Boolean), before = $("model").value;
  const found = models.filter(model => words.every(word => model.name.toLowerCase().includes(word)));
  $("model").replaceChildren(...found.map(model => make("option", {value: model.name}, model.name)));
  if (found.some(model => model.name === before)) $("model").value = before;
  else if (found.length && photos.length) $("model").dispatchEvent(new Event("change"));
}

// One photo
async function showOne(photo) {
  const mine = ++turn;
  $("one").hidden = false;
  $("tiles").hidden = true;
  $("back").hidden = photos.length < 2;
  const inputs = theModel()?.inputs ?? [];
  $("photo").src = photo.urls[0];
  $("photo").hidden = false;
  $("name").textContent = named(photo, 0);
  $("size").textContent = bytes(photo.files[0].size);
  $("others").replaceChildren(...photo.files.slice(1).map((file, index) => make("div", {},
    make("div", {class: "shot"}, make("img", {src: photo.urls[index + 1], alt: ""})),
    make("div", {class: "name"}, named(photo, index + 1)), make("div", {class: "faint"}, bytes(file.size)))));
  $("swap").hidden = photo.files.length < 2;
  for (const id of ["stages", "times", "lines"]) $(id).hidden = true;
  $("outputs").replaceChildren();
  for (const drawn of document.querySelectorAll(".shot svg, .shot .over")) drawn.remove();
  say("sending …");
  try {
    const answer = await send("/photo", photo.files);
    if (mine !== turn) return;
    photo.answer = answer;
    $("photo").style.imageOrientation = answer.is_upright ? "" : "none";
    const arrays = answer.outputs.map(output);
    $("outputs").replaceChildren(...(answer.found ? [found(answer.found),
      make("details", {class: "output"}, make("summary", {}, "output arrays"), ...arrays)] : arrays));
    showTimes(answer, null);
    for (const [id, text] of Object.entries(answer.lines)) $(id).querySelector("pre").textContent = text;
    $("lines").hidden = false;
    say("drawing the stages …");
  } catch (error) {
    if (mine === turn) say(error.message, true);
    return;
  }
  try {
    const found = [];
    for (const [index, file] of photo.files.entries()) {
      const {stages} = await send("/stages", [file], [["input", inputs[index] ?? ""]]);
      if (mine !== turn) return;
      if (stages) found.push(stages);
    }
    say("");
    if (!found.length) return;
    $("size").textContent = `${found[0].width} wide, ${found[0].height} high, ${bytes(photo.files[0].size)}`;
    $("stages").replaceChildren(...found.flatMap(stagesOf));
    $("stages").hidden = false;
    showTimes(photo.answer, found[0]);
  } catch (error) {
    if (mine === turn) say(`The stages are not shown: ${error.message}`, true);
  }
}
const named = (photo, index) =>
  photo.files.length > 1 ? `${theModel()?.inputs[index]}: ${photo.files[index].name}` : photo.files[index].name;
function output(data) {
  const box = make("div", {class: "output"}, make("h2", {}, data.kind === "scores" ? `Best classes of ${data.name}` : data.name));
  if (data.kind === "scores") {
    const rows = make("div", {class: "rows"});
    data.classes.forEach((entry, rank) => rows.append(
      make("span", {class: "label", title: `class ${entry.class}`}, entry.label), bar(entry.share, rank === 0),
      make("span", {class: "number"}, percent(entry.share)),
      make("span", {class: "number faint score"}, short(entry.score))));
    const names = data.is_labelled ? "" : " The model does not have labels: add them with pixprep build --labels FILE.";
    box.append(rows, make("div", {class: "faint"},
      `Output ${data.name}, ${data.classes.length} of ${data.shape[0].toLocaleString("en")} classes: probability and score.${names}`));
  } else if (data.kind === "picture") {
    box.append(saved(data.file.endsWith(".png") ? "png" : "jpeg", data.data, data.file, data.name));
  } else if (data.kind === "texts") {
    box.append(...data.texts.map(text => make("div", {}, text || "(empty)")));
  } else if (data.kind === "values") {
    box.append(make("div", {}, data.values.map(value => short(value)).join(", ")));
  } else {
    if (data.png) box.append(saved("png", data.png, `${data.name}.png`, `heat map of ${data.name}`));
    box.append(make("div", {}, `${short(data.min)} to ${short(data.max)}, mean ${short(data.mean)}`));
  }
  if (data.kind !== "scores") box.append(make("div", {class: "faint"}, `${data.dtype} [${data.shape.join(", ")}]`));
  return box;
}
function saved(type, data, file, name) {  // returns a picture; a click saves it as a file
  const src = `data:image/${type};base64,${data}`;
  return make("a", {href: src, download: file}, make("img", {class: "map", src, alt: `${name}: save as ${file}`}));
}
function found(data) {  // draws detected objects over the photo, and returns a list with a bar for each score
  const over = make("svg", {viewBox: `0 0 ${data.width} ${data.height}`, "aria-hidden": "true"});
  const rows = make("div", {class: "rows"});
  for (const {label, score, color, corners, points} of data.objects) {
    const outline = make("path", {d: `M${corners.join("L")}Z`});
    const dots = make("path", {class: "points", d: points.map(point => `M${point}h0`).join("")});
    outline.style.stroke = color;
    over.append(outline, dots);
    rows.append(make("span", {class: "label"}, label), bar(score, true),
      make("span", {class: "number"}, percent(score)), make("span", {class: "score"}));
  }
  if (data.png) $("photo").after(make("img", {class: "over", src: `data:image/png;base64,${data.png}`, alt: ""}));
  $("photo").parentElement.append(over);
  const drawn = ["boxes", ...(data.has_points ? ["keypoints with a score of at least 0.5"] : []), ...(data.png ? ["masks"] : [])];
  return make("div", {class: "output"}, make("h2", {}, counted(data)), rows,
    make("div", {class: "faint"}, data.objects.length ? `Drawn over the photo: ${drawn.join(", ")}.` : "No object has a score above 0.25."));
}
const counted = data => data.objects.length === 1 ? "1 object" : `${data.objects.length} objects`;
function stagesOf(stages) {
  const parts = [make("h2", {}, `The stages of ${stages.pipeline}`)];
  for (const tensor of stages.tensors) {
    if (stages.tensors.length > 1) parts.push(make("h3", {class: "tensor"}, `tensor ${tensor.name}`));
    parts.push(make("div", {class: "panels"}, ...tensor.panels.map(panel), spreads(tensor)));
    if (tensor.notes.length) parts.push(make("div", {class: "notes faint"}, `Note: ${tensor.notes.join("; ")}.`));
  }
  for (const note of stages.notes) parts.push(make("div", {class: "notes faint"}, `Note: ${note}.`));
  if (stages.left_out) parts.push(make("div", {class: "faint"}, `${stages.left_out} more tensors are not shown.`));
  return parts;
}
function panel(data) {
  const picture = make("div", {class: "picture"}, make("img", {src: `data:image/png;base64,${data.png}`, alt: data.title}));
  if (data.frame) {
    const frame = make("i");
    ["top", "left", "height", "width"].forEach((side, index) => frame.style[side] = `${100 * data.frame[index]}%`);
    picture.append(frame);
  }
  return make("div", {class: "panel"}, make("h3", {}, data.title), make("div", {class: "faint"}, data.line),
    make("div", {}, picture, ...data.words.map(text => make("p", {}, text))));
}
function spreads(tensor) {
  return make("div", {class: "panel"}, make("h3", {}, "4  histogram"),
    make("div", {class: "faint"}, `distribution of the values from ${short(tensor.low)} to ${short(tensor.high)}`),
    make("div", {}, ...tensor.channels.map(channel => {
      const most = Math.max(1, ...channel.counts), step = 100 / channel.counts.length;
      const tops = channel.counts.map((count, index) => `V${40 - 38 * count / most}H${(index + 1) * step}`);
      const path = make("path", {d: `M0 40${tops.join("")}V40Z`});
      path.style.fill = `var(--${channel.name})`;
      return make("div", {class: "spread"},
        make("svg", {viewBox: "0 0 100 40", preserveAspectRatio: "none", role: "img", "aria-label": channel.name}, path),
        make("div", {class: "faint"}, `${channel.name}: ${short(channel.min)} to ${short(channel.max)}, ` +
          `mean ${short(channel.mean, 2)}, std ${short(channel.std, 2)}`));
    })));
}
function showTimes(answer, stages) {
  const rows = make("div", {class: "rows"}), longest = Math.max(answer.request_ms, stages?.engine_ms ?? 0);
  const row = (name, value, {isSub = false, isFirst = false} = {}) => rows.append(
    make("span", {class: isSub ? "label sub" : "label"}, name), bar(value / longest, isFirst), make("span", {class: "number"}, ms(value)));
  row("request, round trip", answer.request_ms, {isFirst: true});
  for (const step of answer.steps) {
    row(`queue of ${step.model}`, step.queue_ms);
    row(`${step.model}, in Triton`, step.compute_ms);
  }
  if (stages) {
    row("engine, one thread, in this page's process", stages.engine_ms, {isFirst: true});  // separate from Triton's times
    row("decode", stages.decode_ms, {isSub: true});
    row("pixels to tensor", stages.transform_ms, {isSub: true});
  }
  const shared = answer.steps.filter(step => step.count > 1).map(step => `${step.model} had ${step.count}`);
  const average = shared.length ? ` Averages that include other requests: ${shared.join(", ")}.` : "";
  $("times").replaceChildren(make("h2", {}, "Milliseconds"), rows, make("div", {class: "faint"},
    "Measured for this photo. Request: sent over gRPC by this page's server. Models: from Triton's statistics, including " +
    `copies of tensors. Engine: a separate run of the same pipeline, not part of the request.${average}`));
  $("times").hidden = false;
}

// Several photos
const nameOf = photo => photo.files.map(file => file.name).join(", ");
function tile(photo) {
  const label = make("b", {}, "…"), share = bar(0, true), time = make("span");
  const line = make("span", {class: "faint"}, make("span", {}, nameOf(photo)), time);
  const image = make("img", {src: photo.urls[0], alt: "", loading: "lazy", decoding: "async"});
  image.addEventListener("error", () => image.style.visibility = "hidden");  // for example a TIFF, which browsers do not display
  const button = make("button", {class: "tile", type: "button"}, image, make("span", {}, label, share, line));
  button.addEventListener("click", () => showOne(photo));
  photo.tile = button;
  photo.fill = (text, part, isWrong = false) => {
    label.textContent = isWrong ? text.match(/\[([A-Z_]+)\]/)?.[1].replaceAll("_", " ").toLowerCase() ?? text : text;
    button.title = isWrong ? `${nameOf(photo)}: ${text}` : nameOf(photo);
    label.className = isWrong ? "wrong" : "";
    share.firstChild.style.width = `${100 * part}%`;
    share.style.visibility = part ? "" : "hidden";
    time.textContent = photo.answer ? ms(photo.answer.request_ms) : "";
  };
  photo.fill("…", 0);
  return button;
}
function showTiles() {
  turn += 1;
  $("one").hidden = true;
  $("tiles").hidden = false;
  askAll(turn);
}
async function askAll(mine) {
  let failed = photos.filter(photo => photo.error).length, done = photos.filter(photo => photo.answer).length + failed;
  const left = photos.filter(photo => !photo.answer && !photo.error);
  const tell = () => say(`${done} of ${photos.length} photos${failed ? `, ${failed} rejected` : ""}${skipped()}`);
  const work = async () => {
    for (let photo; mine === turn && (photo = left.shift());) {
      try {
        photo.answer = await send("/photo", photo.files);
        const scores = photo.answer.outputs.find(entry => entry.kind === "scores");
        if (scores) photo.fill(scores.classes[0].label, scores.classes[0].share);
        else photo.fill(photo.answer.found ? counted(photo.answer.found) : "done", 0);
      } catch (error) {
        photo.error = error.message;
        photo.fill(error.message, 0, true);
        failed += 1;
      }
      done += 1;
      if (mine === turn) tell();
    }
  };
  tell();
  await Promise.all(Array.from({length: MAX_CONCURRENT}, work));
}
let left = 0;  // number of skipped files
const skipped = () => left
  ? `; ${left} ${left === 1 ? "file" : "files"} skipped: not an image file name, or more than ${MAX_PHOTOS.toLocaleString("en")} photos`
  : "";

// Choosing
function choose(files) {
  if (!files.length) return;
  const images = files.length === 1 ? files : files.filter(file => SUFFIXES.test(file.name));
  if (!images.length) {
    say(`None of the ${files.length} files has the file name of an image.`, true);
    return;
  }
  chosen = images.sort((one, other) => one.name < other.name ? -1 : 1).slice(0, MAX_PHOTOS);
  left = files.length - chosen.length;
  show();
}
function show() {  // groups the chosen files into requests and shows them
  const inputs = theModel()?.inputs ?? [""];
  for (const url of photos.flatMap(photo => photo.urls)) URL.revokeObjectURL(url);
  photos = [];
  turn += 1;
  if (chosen.length % inputs.length) {
    $("one").hidden = $("tiles").hidden = true;
    say(`This model compares ${inputs.length} photos (${inputs.join(", ")}): choose ${inputs.length} photos, or a multiple.`, true);
    return;
  }
  for (let start = 0; start < chosen.length; start += inputs.length) {
    const files = chosen.slice(start, start + inputs.length);
    photos.push({files, urls: files.map(file => URL.createObjectURL(file))});
  }
  $("drop").className = "";
  $("tiles").replaceChildren(...photos.map(tile));
  if (photos.length === 1) showOne(photos[0]); else showTiles();
}
async function filesOf(entry, found) {
  if (found.length > 4 * MAX_PHOTOS) return;
  if (entry.isFile) {
    found.push(await new Promise((resolve, reject) => entry.file(resolve, reject)));
    return;
  }
  const reader = entry.createReader();
  for (let some; (some = await new Promise((resolve, reject) => reader.readEntries(resolve, reject))).length;) {
    for (const inner of some) await filesOf(inner, found);
  }
}
for (const id of ["files", "folder"]) {
  $(id).addEventListener("change", event => {
    const files = [...event.target.files];
    choose(id === "folder" && files.length === 1 ? files.filter(file => SUFFIXES.test(file.name)) : files);
    event.target.value = "";  // allows choosing the same file again
  });
}
$("sample").addEventListener("click", async () => {
  const answer = await fetch("/sample");
  const sample = new File([await answer.blob()], "flower.jpg", {type: "image/jpeg"});
  choose((theModel()?.inputs ?? [""]).map(() => sample));
});
let depth = 0;
document.addEventListener("dragenter", event => { event.preventDefault(); depth += 1; $("drop").classList.add("over"); });
document.addEventListener("dragleave", () => { if (!--depth) $("drop").classList.remove("over"); });
document.addEventListener("dragover", event => event.preventDefault());
document.addEventListener("drop", async event => {
  event.preventDefault();
  depth = 0;
  $("drop").classList.remove("over");
  const entries = [...event.dataTransfer.items].map(item => item.webkitGetAsEntry?.()).filter(Boolean);
  let found = [...event.dataTransfer.files];
  if (entries.some(entry => entry.isDirectory)) {
    found = [];
    try {
      for (const entry of entries) await filesOf(entry, found);
    } catch (error) {
      say(`The folder cannot be read: ${error.message}`, true);
      return;
    }
  }
  choose(found);
});
document.addEventListener("paste", event => choose([...event.clipboardData.files]));
document.addEventListener("keydown", event => {
  if (event.key === "Escape" && !$("back").hidden && !$("one").hidden) goBack();
});
function goBack() {
  const shown = photos.find(photo => photo.urls[0] === $("photo").src);
  showTiles();
  shown?.tile.focus();
}
$("back").addEventListener("click", goBack);
$("photo").addEventListener("error", () => $("photo").hidden = true);
$("swap").addEventListener("click", () => {
  const shown = photos.find(photo => photo.urls[0] === $("photo").src);
  shown.files.reverse();
  shown.urls.reverse();
  delete shown.answer;
  showOne(shown);
});
$("model").addEventListener("change", () => {
  if (photos[0]?.files.length !== theModel()?.inputs.length) {
    if (chosen.length) show();
    return;
  }
  for (const photo of photos) {
    delete photo.answer;
    delete photo.error;
    photo.fill("…", 0);
  }
  if (photos.length === 1 || !$("one").hidden) showOne(photos.find(photo => photo.urls[0] === $("photo").src) ?? photos[0]);
  else if (photos.length) showTiles();
});
for (const id of ["shell", "python"]) {
  const button = $(id).querySelector("button");
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText($(id).querySelector("pre").textContent);
    button.textContent = "Copied";
    setTimeout(() => button.textContent = "Copy", 1500);
  });
}
if (matchMedia("(max-width: 720px)").matches) for (const id of ["shell", "python"]) $(id).open = false;
$("filter").addEventListener("input", fillMenu);
findModels();
