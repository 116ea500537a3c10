"""Ops that begin a pipeline: ``decode``, ``decode_video``, and ``pixels`` for images that are already decoded."""

from __future__ import annotations

from fractions import Fraction
from typing import Annotated, Any, Literal, cast

from pixprep.errors import PipelineError
from pixprep.pipeline.ops.limits import Within, shown
from pixprep.pipeline.ops.op import FirstOp
from pixprep.plan.clip_frames import Rule, Sampling, Short, Start
from pixprep.plan.draws.augments import Drawing, RandomStep, Uniforms
from pixprep.plan.draws.philox import Words
from pixprep.plan.lowered import Lowered
from pixprep.plan.plan import ClipPlan, Plan
from pixprep.spec import Alpha, Chroma, Color, FrameLayout, Frames, FrameType, GrayLike, Idct, ImageSpec

MAX_FRAMES = 4096
MAX_CLIPS = 256
MIN_VALUE, MAX_VALUE = -32768, 65535  # limits of the values of 16-bit samples
MIN_RATE = 0.001  # in frames per second


class Decode(FirstOp, frozen=True, tag="decode", kw_only=True):
    """Decodes one encoded image (JPEG, PNG, WebP, BMP, TIFF or the first frame of a GIF) to uint8.

    A server can also enable AVIF and HEIC with its parameter ``formats``.

    The op behaves like torchvision's ``decode_image`` with mode RGB or GRAY, but applies the EXIF orientation by
    default. A JPEG is decoded with the defaults of libjpeg-turbo, as in Pillow, OpenCV and torchvision: accurate
    integer IDCT and "fancy" chroma upsampling. For ``gray``, the luma plane of a JPEG is decoded, and images in other
    formats are converted as Pillow's ``convert("L")`` does. CMYK is converted to RGB as in Pillow. Color profiles are
    ignored, as in Pillow, OpenCV and torchvision: the values of a Display P3 photo are treated as sRGB.

    If a TIFF has several pages, the first page that is not marked as a thumbnail is decoded. Samples that are neither
    color nor alpha are ignored. The engine logs one warning if an image loses data this way. It also logs one warning
    if an image has fewer than 64 different pixel values, such as 12-bit data in a 16-bit PNG: see ``window``. Raw
    photos (NEF, DNG, CR2, ARW), samples of more than 16 bits, and signed samples without a ``window`` are rejected.

    Args:
        color: Order of the channels.
        apply_exif_orientation: Whether the image is rotated and mirrored as its EXIF orientation specifies. The
            orientation is read as in Pillow 13; XMP is ignored. If false, the pixels remain in the stored orientation,
            except for TIFF and HEIC files, whose decoders apply the orientation. An AVIF or HEIC stores its orientation
            in the container, not in EXIF.
        chroma: Upsampling of the chroma of a subsampled JPEG. ``fancy`` interpolates, as nearly all training code does.
            ``fast`` repeats values. It is a few percent faster, and its pixel values differ from those of ``fancy`` by
            up to 73. ``fast`` rejects JPEGs with rare sampling factors that only Pillow decodes, because Pillow
            interpolates.
        idct: Inverse DCT of a JPEG. ``fast`` is TensorFlow's default: 64 % of the values differ from ``accurate``, by
            up to 18. With ``fast``, images are decoded on the CPU even if the pipeline runs on a GPU.
        reduced: Whether a JPEG may be decoded at 1/2, 1/4 or 1/8 of its size. The decoder chooses a reduced size only
            if the resize of every tensor still shrinks the reduced image to half its height and width or less. Only
            JPEGs with one or three components are reduced, and only on the CPU. All other images are decoded at full
            size. Sizes, crop windows and ``transform`` still refer to the full image. Pixel values of photos change by
            0.1 to 1.0 on average and by at most 16, or by up to 27 at the edge of a crop that precedes the resize
            (measured on photos of 500 x 375 to 4032 x 3024, with a shorter side of 40 to 256 after the resize). This
            option requires a resize with ``"like": "pillow"``, antialiasing, and a filter other than ``nearest`` and
            ``box``.
        alpha: Treatment of transparent images. ``drop`` keeps the colors as they are stored, like Pillow's
            ``convert("RGB")``. ``white`` composites the image on white first, like Hugging Face's ``do_convert_rgb``.
            ``checkerboard`` composites it on squares of 8 x 8 pixels with the gray values 204 and 153 (Inkling 2). A
            BMP whose alpha is 0 everywhere is treated as opaque, as in browsers. ``keep`` appends the alpha of the file
            as a fourth channel, 0 (transparent) to 255; it is 255 for images without alpha. See docs/pipeline-file.md.
        window: Two sample values, low and high, which become the pixel values 0 and 255. The window applies to PNG and
            TIFF files with more than 8 bits per sample. A value v becomes ``(min(max(v, low), high) - low) * 255 /
            (high - low) + 0.5``, rounded down. The window applies to each color channel, before the image is converted
            to gray or composited on white. The alpha channel is always reduced to its high byte. By default, each value
            is reduced to its 8 most significant bits. A signed 16-bit TIFF requires a window, whose values may be
            negative. Images with 8 bits per sample do not change.

        gray_like: Library whose formula converts an image that is not a JPEG to ``gray``. ``opencv`` uses the formulas
            of ``cv2.imread(path, cv2.IMREAD_GRAYSCALE)``, which depend on the format. It supports PNG, WebP, BMP and
            TIFF files with 8 bits per sample, and rejects other formats and larger bit depths. Default: ``pillow``, as
            ``convert("L")``.

    Example:
        {"op": "decode", "color": "bgr"}
    """

    color: Color = "rgb"
    apply_exif_orientation: bool = True
    chroma: Chroma = "fancy"
    idct: Idct = "accurate"
    reduced: bool = False
    alpha: Alpha = "drop"
    window: tuple[int, int] | None = None
    gray_like: GrayLike | None = None

    def described(self, image: ImageSpec, before: Lowered) -> str:
        color = self.color if self.color == "gray" else self.color.upper()
        color += ", keep alpha as a fourth channel" * (self.alpha == "keep")
        return f"decode to {color}, {'apply' if self.apply_exif_orientation else 'ignore'} the EXIF orientation"

    def check(self) -> None:
        if self.only is not None:
            raise PipelineError('"only" is not supported, because both sides decode in the same way: remove it')
        if self.gray_like is not None and self.color != "gray":
            raise PipelineError('"gray_like" requires "color": "gray"')
        if self.gray_like == "opencv" and (self.alpha != "drop" or self.window is not None):
            raise PipelineError('"gray_like": "opencv" supports neither "alpha" other than "drop" nor "window"')
        if self.alpha == "keep" and (self.color != "rgb" or self.reduced):
            raise PipelineError('"alpha": "keep" requires "color": "rgb", and does not support "reduced": true')
        if self.window is not None and not MIN_VALUE <= self.window[0] < self.window[1] <= MAX_VALUE:
            raise PipelineError(
                f'"window" must be (low, high) with {MIN_VALUE} <= low < high <= {MAX_VALUE}, not {shown(self.window)}'
            )

    def infer(self) -> ImageSpec:
        return ImageSpec(color=self.color, has_alpha=self.alpha == "keep")

    def plan(self, **parts: Any) -> Plan:
        return Plan(
            is_gray=self.color == "gray",
            apply_exif_orientation=self.apply_exif_orientation,
            chroma=self.chroma,
            idct=self.idct,
            reduced=self.reduced,
            alpha=self.alpha,
            window=self.window,
            gray_like=self.gray_like or "pillow",
            **parts,
        )


class DecodeVideo(Drawing, FirstOp, frozen=True, tag="decode_video", kw_only=True):
    """Decodes frames of one clip (MP4, MOV, Matroska, WebM or AVI; H.264, H.265, VP8, VP9, AV1 or MPEG-4).

    All frames have the same geometry, and a random op samples its parameters once per clip. FFmpeg decodes the clip
    through PyAV (``pip install "av>=17"``). The pixels equal those of PyAV's ``to_ndarray("rgb24")`` and of torchcodec.
    The stream specifies the color matrix and the color range. If it does not, BT.601 and limited range are assumed, as
    in these two libraries. Audio and the pixel aspect ratio are ignored. Frames are counted from the first frame that
    can be decoded.

    Args:
        frames: Number of frames. With ``rate``, it is the maximum number.
        sample: Selection of the frames. ``uniform`` selects the first frame, the last frame and evenly spaced frames
            between them (``i * (n - 1) // (frames - 1)`` of n frames). ``first`` selects the first frames. ``random``,
            in training only, divides the clip into ``frames`` equal segments and selects one frame from each.
            ``segments`` selects the first or the middle frame of each such segment, as ``start`` specifies
            (``i * n // frames`` or ``(2 * i + 1) * n // (2 * frames)``). ``rounded`` is ``uniform``, with ``i * (n - 1)
            / (frames - 1)`` rounded to the nearest integer, ties to even (Qwen3-VL). ``trimmed``, with ``rate`` only,
            is ``uniform`` without duplicates, and without the first and the last second of a clip of more than ``frames
            * rate + 2`` seconds (SmolVLM).
            ``{"step": n}`` selects every n-th frame. ``{"fps": f}`` selects the frames that are displayed at intervals
            of 1 / f seconds. ``{"seconds": s}`` selects evenly spaced frames from the first to the last frame of a
            window of s seconds.
        start: Position of the selected frames in the clip for ``step``, ``fps`` and ``seconds``. With ``first``, they
            begin at the first frame of the clip. With ``middle``, they are centered in the clip. With ``random``, which
            is supported in training only, they begin at a random frame. For ``segments``, it is the frame to select
            from each segment, ``first`` or ``middle``.
        clips: Number of evenly spaced clips of ``frames`` frames each, which together form one tensor with the axis
            ``n``, such as ``ntchw``. The frames equal those of a library, which depends on ``sample``: ``{"step": n}``
            reproduces mmaction2's ``SampleFrames`` in test mode, ``{"fps": f}`` reproduces torchvision's ``VideoClips``
            with ``frame_rate`` and ``UniformClipSampler``, and ``{"seconds": s}`` reproduces PyTorchVideo's
            ``ConstantClipsPerVideoSampler`` with ``UniformTemporalSubsample``. By default, there is one clip, which
            begins at ``start``.
        clip: Index, from 0 to ``clips`` - 1, of the clip to select. The tensor then contains only this clip, and does
            not have the axis ``n``.
        rate: Number of frames to select per second. The number of selected frames is then ``rate`` times the duration
            of the clip, which is its number of frames divided by the frame rate that the container specifies. The
            product is rounded down, or with ``trimmed`` to the nearest integer. It is limited to at least
            ``min_frames``, and to at most ``frames`` and the number of frames of the clip. The outputs must be
            ``patches`` or ``tiles``.
        min_frames: Minimum number of frames with ``rate``.
        frames_multiple: With ``rate``, the number of frames is rounded down to a multiple of this number.
        short: Treatment of a clip with too few frames. ``refuse`` rejects the clip. ``repeat`` repeats frames; ``step``
            and ``fps`` then repeat the last frame, or with ``clips`` the last selected frame. ``loop``, for ``step``
            with ``clips``, continues with the first frame of the file, as mmaction2 does by default.
        color: Order of the channels, or ``gray``. The gray value is the BT.601 luma, independent of the color matrix of
            the stream, as in PyAV's ``to_ndarray("gray")``.
        apply_rotation: Whether to apply the rotation that the container specifies.

    Example:
        {"op": "decode_video", "frames": 16, "sample": {"fps": 8}}
    """

    frames: Annotated[int, Within(1, MAX_FRAMES)]
    sample: Literal["uniform", "rounded", "trimmed", "first", "random", "segments"] | dict[str, float] = "uniform"
    start: Start = "first"
    clips: Annotated[int, Within(1, MAX_CLIPS)] | None = None
    clip: Annotated[int, Within(0, MAX_CLIPS - 1)] | None = None
    short: Short = "refuse"
    rate: Annotated[float, Within(MIN_RATE, MAX_FRAMES)] | None = None
    min_frames: Annotated[int, Within(1, MAX_FRAMES)] = 1
    frames_multiple: Annotated[int, Within(1, 64)] = 1
    color: Color = "rgb"
    apply_rotation: bool = True

    def described(self, image: ImageSpec, before: Lowered) -> str:
        color = self.color if self.color == "gray" else self.color.upper()
        return f"decode {self.sampling} to {color}{', apply the rotation of the container' * self.apply_rotation}"

    def check(self) -> None:
        if isinstance(self.sample, dict):
            ((rule, by),) = [*self.sample.items()] if len(self.sample) == 1 else [("", 0.0)]
            if (
                rule not in ("step", "fps", "seconds")
                or not MIN_RATE <= by <= MAX_FRAMES
                or (rule == "step" and by != int(by))
            ):
                raise PipelineError(
                    '"sample" must be "uniform", "rounded", "trimmed", "first", "random", "segments", {"step": n} with '
                    'an integer n, {"fps": f} or {"seconds": s}'
                )
        elif self.sample == "segments" and self.start == "random":
            raise PipelineError('"sample": "segments" does not support a random "start": use "sample": "random"')
        elif self.start != "first" and self.sample != "segments":
            raise PipelineError(
                '"start" requires "sample": "segments", {"step": ...}, {"fps": ...} or {"seconds": ...}'
            )
        self._check_clips()
        if self.rate is None:
            if self.sample == "trimmed" or self.min_frames > 1 or self.frames_multiple > 1:
                field = "min_frames" if self.min_frames > 1 else "frames_multiple"
                what = '"sample": "trimmed"' if self.sample == "trimmed" else f'"{field}"'
                raise PipelineError(f'{what} requires "rate", the number of frames per second')
        elif self.sample not in ("uniform", "rounded", "trimmed", "segments") or self.short == "repeat":
            raise PipelineError(
                '"rate" requires "sample": "uniform", "rounded", "trimmed" or "segments", and does not support '
                '"short": "repeat"'
            )
        elif self.sample == "trimmed" and (self.min_frames > 1 or self.frames_multiple > 1):
            raise PipelineError('"sample": "trimmed" supports neither "min_frames" nor "frames_multiple": remove them')
        elif max(self.min_frames, self.frames_multiple) > self.frames:
            raise PipelineError(f'"min_frames" and "frames_multiple" must not exceed "frames", {self.frames}')
        if self.is_random and self.only != "training":
            raise PipelineError(
                'random frames are supported in training only: add "only": "training", and add another decode_video '
                'with "only": "serving"'
            )

    def _check_clips(self) -> None:
        if self.short == "loop" and (self.clips is None or "step" not in self.sample):
            raise PipelineError('"short": "loop" requires "clips" and "sample": {"step": ...}')
        if self.clips is None:
            if self.clip is not None:
                raise PipelineError('"clip" selects one of several clips: set "clips" to their number')
            return
        if not isinstance(self.sample, dict):
            raise PipelineError('"clips" requires "sample": {"step": ...}, {"fps": ...} or {"seconds": ...}')
        if self.frames == 1:
            raise PipelineError(
                '"clips" requires at least 2 "frames": for single frames, set "frames" to their number, and "sample" '
                'to "segments"'
            )
        if self.start != "first":
            raise PipelineError('"clips" does not support "start", because the clips are evenly spaced: remove one')
        if self.clip is not None and self.clip >= self.clips:
            raise PipelineError(f'"clip" must be less than "clips", {self.clips}, not {self.clip}')
        if self.frames * self.clips > MAX_FRAMES:
            raise PipelineError(f'"clips" x "frames" must be at most {MAX_FRAMES:,}, not {self.frames * self.clips:,}')

    @property
    def is_random(self) -> bool:
        """Whether the frames are selected at random."""
        return self.sample == "random" or self.start == "random"

    @property
    def blocks(self) -> int:
        """Number of blocks of four random numbers, for one number per frame or, with a random ``start``, one number."""
        return -(-self.frames // 4) if self.sample == "random" else 1

    def draw(self, height: int, width: int, uniforms: Uniforms) -> Words:
        """Return random numbers. From these, the decoder selects the frames, because it knows the timestamps."""
        count = self.frames if self.sample == "random" else 1
        return {"uniforms": uniforms(0, self.blocks).ravel()[:count].tolist()}

    def in_words(self) -> str:
        return str(self.sampling)

    @property
    def sampling(self) -> Sampling:
        """Selection of the frames."""
        ((sample, by),) = self.sample.items() if isinstance(self.sample, dict) else [(self.sample, 1.0)]
        return Sampling(
            frames=self.frames,
            rule=cast("Rule", {"first": "step", "random": "segments"}.get(sample, sample)),
            by=Fraction(by).limit_denominator(1_000_000),
            start="random" if sample == "random" else self.start,
            short=self.short,
            clips=self.clips,
            clip=self.clip,
            rate=self.rate,
            min_frames=self.min_frames,
            multiple=self.frames_multiple,
        )

    def infer(self) -> ImageSpec:
        clips = self.clips if self.clip is None else None
        is_open = self.rate is not None
        return ImageSpec(frames=self.frames * (clips or 1), clips=clips, is_frames_open=is_open, color=self.color)

    def plan(self, **parts: Any) -> Plan:
        if any(spec.is_region for spec in parts["inputs"].values()):
            raise PipelineError(
                "ops: inputs with boxes, corners or points of regions are supported for images, not for decode_video"
            )
        drawn = RandomStep(self.name or "decode_video#0", self) if self.is_random else None
        clip = ClipPlan(self.sampling, drawn, self.apply_rotation)
        return Plan(is_gray=self.color == "gray", clip=clip, **parts)


class Pixels(FirstOp, frozen=True, tag="pixels", kw_only=True):
    """Accepts arrays with the pixels of images that are already decoded. The op replaces ``decode``.

    By default, the arrays are uint8 with the shape [height, width, 3]. The fields ``dtype`` and ``layout`` select other
    formats, and a ``window`` maps a wider range of values, such as that of CT images, to 0 to 255. Gray images have a
    single channel, whose axis may be omitted in Python.

    With the default format, Triton's clients send UINT8 tensors [n, height, width, 3]. All images of a request have the
    same size. In Python, the images are arrays of NumPy, PyTorch, CuPy or any other library whose arrays NumPy or CuPy
    can view without a copy. The arrays need not be contiguous, and pixprep never writes to them. If RGB or BGR images
    are resized, the pixels that the resize reads are copied once. Gray images and images that are only cropped are not
    copied. Arrays do not contain an EXIF orientation, so the code that decodes the image must apply it.

    Without a ``window``, float32 arrays must contain only integers from 0 to 255, which are converted to uint8. An
    image with any other value is rejected. With a ``window``, an image that contains NaN is rejected.

    Args:
        color: Order of the channels that the following ops receive, as in ``decode``.
        given: Order of the channels in the input arrays. Default: ``color``. OpenCV and most cameras use ``bgr``.
        dtype: Dtype of the input arrays.
        layout: Order of the axes of the input arrays: ``hwc`` is [height, width, channels], ``chw`` is [channels,
            height, width].
        window: Two values, low and high, which become the pixel values 0 and 255. A value v becomes ``(min(max(v, low),
            high) - low) * 255 / (high - low) + 0.5``, rounded down. Required for ``int16`` and ``uint16``, and not
            supported for ``uint8``.

    Example:
        {"op": "pixels", "given": "bgr"}
    """

    color: Color = "rgb"
    given: Literal["rgb", "bgr"] | None = None
    dtype: FrameType = "uint8"
    layout: FrameLayout = "hwc"
    window: tuple[float, float] | None = None
    description = "{0.frames!s}"

    def check(self) -> None:
        if self.only is not None:
            raise PipelineError(
                '"only" is not supported, because training and serving have the same input: remove "only"'
            )
        if self.given is not None and self.color == "gray":
            raise PipelineError('"given" is the order of three channels, but "color": "gray" has only one: remove it')
        if self.window is None and self.dtype in ("int16", "uint16"):
            raise PipelineError(f'"dtype": "{self.dtype}" requires "window": set the values that become 0 and 255')
        if self.window is not None and self.dtype == "uint8":
            raise PipelineError('"window" requires "dtype": "int16", "uint16" or "float32"')
        if self.window is not None and not -1e30 <= self.window[0] < self.window[1] <= 1e30:
            raise PipelineError(f'"window" must be (low, high) with low < high, not {shown(self.window)}')

    @property
    def frames(self) -> Frames:
        """Format of the input arrays."""
        return Frames(self.given or self.color, self.dtype, self.layout, self.window)

    def infer(self) -> ImageSpec:
        return ImageSpec(color=self.color)

    def plan(self, **parts: Any) -> Plan:
        return Plan(is_gray=self.color == "gray", takes=self.frames, **parts)
