"""The first op of every pipeline: ``decode``, or ``pixels`` where nothing is encoded."""

from __future__ import annotations

from fractions import Fraction
from typing import Annotated, Any, Literal

from pixprep.errors import PipelineError
from pixprep.pipeline.ops.limits import Within, shown
from pixprep.pipeline.ops.op import FirstOp
from pixprep.plan.clip_frames import Rule, Sampling, Start
from pixprep.plan.draws.augments import Drawing, RandomStep, Uniforms
from pixprep.plan.draws.philox import Words
from pixprep.plan.lowered import Lowered
from pixprep.plan.plan import ClipPlan, Plan
from pixprep.spec import Alpha, Chroma, Color, FrameLayout, Frames, Idct, ImageSpec

MAX_FRAMES = 4096
LEAST_VALUE, MOST_VALUE = -32768, 65535  # of a sample
LEAST_RATE = 0.001  # frames a second


class Decode(FirstOp, frozen=True, tag="decode", kw_only=True):
    """Decode one encoded image (JPEG; also PNG, WebP, BMP, TIFF, the first frame of a GIF) to uint8.

    A server may allow AVIF and HEIC, too (its parameter ``formats``).

    Like torchvision's ``decode_image`` with mode RGB or GRAY, but with the EXIF orientation applied by default.
    JPEG as libjpeg-turbo does by default, and so Pillow, OpenCV and torchvision: accurate integer IDCT, "fancy" chroma
    upsampling. Gray is the luma plane of a JPEG, and Pillow's ``convert("L")`` of other formats. CMYK becomes RGB as in
    Pillow. Colour profiles are ignored, as in Pillow, OpenCV and torchvision: the numbers of a Display P3 photo are
    taken for sRGB.

    Of a TIFF with several pages the first one is decoded that is not marked as a thumbnail. Samples that are neither
    colour nor alpha are ignored. The engine logs a warning, once, for an image of which this loses something, and for
    one whose values become fewer than 64 of the 256 levels, as 12 bits in a PNG of 16 bits do: see ``window``. Raw
    photos (NEF, DNG, CR2, ARW), signed samples and those with over 16 bits are refused.

    Args:
        color: order of the channels.
        apply_exif_orientation: turn the image upright by its EXIF data (not XMP), as Pillow 13 reads it; False keeps
            the pixels as they are stored, except of TIFF and HEIC, which their libraries turn while they read. The
            turn of an AVIF or HEIC is in its container, not in its EXIF data.
        chroma: how the colour of a subsampled JPEG is enlarged. ``fancy``: interpolated, as in nearly all training
            code; ``fast``: repeated, a few percent quicker, up to 73 levels off. ``fast`` refuses rare samplings that
            only Pillow reads, because it interpolates.
        idct: the inverse cosine transform of JPEG. ``accurate``; ``fast``: TensorFlow's default (64 % of the values
            differ, by up to 18 levels); the CPU decodes such images on a GPU too.
        reduced: decode a JPEG to 1/2, 1/4 or 1/8 of its size, if the resize of every tensor then still has at least two
            pixels for each that it makes, on both axes. libjpeg-turbo on the CPU does so for JPEGs of one or three
            components; other images are decoded whole, and so are all on a GPU. Sizes, windows and ``transform`` stay
            those of the whole image. Photos change by 0.1 to 1.0 levels on average, by at most 16, and by up to 27 at
            the edge of a crop before the resize (photos of 500 x 375 to 4032 x 3024, shorter side 40 to 256). It needs
            a resize like Pillow, with antialias, and not by ``nearest`` or ``box``.
        alpha: of transparent images. ``drop`` keeps the colours as they are stored, like Pillow's ``convert("RGB")``;
            ``white`` lays them on white first, like Hugging Face's ``do_convert_rgb``. A BMP whose alpha is 0
            everywhere is opaque, as in browsers.
        window: the two values, low and high, that become the levels 0 and 255 in a PNG or TIFF with more than 8 bits
            per sample. A value v becomes ``(min(max(v, low), high) - low) * 255 / (high - low) + 0.5``, rounded down.
            This is done to each channel, before the image is made gray or laid on white; alpha keeps its high byte.
            Default: a value keeps its high byte, or the highest 8 of 12 bits. A signed TIFF of 16 bits needs a window,
            which may be negative. An image with 8 bits per sample stays as it is.
    """

    color: Color = "rgb"
    apply_exif_orientation: bool = True
    chroma: Chroma = "fancy"
    idct: Idct = "accurate"
    reduced: bool = False
    alpha: Alpha = "drop"
    window: tuple[int, int] | None = None

    def described(self, image: ImageSpec, before: Lowered) -> str:
        upright = "turned upright by its EXIF orientation" if self.apply_exif_orientation else "as it is stored"
        return f"decode to {self.color if self.color == 'gray' else self.color.upper()}, {upright}"

    def check(self) -> None:
        if self.only is not None:
            raise PipelineError('"only": both sides decode alike: leave it out')
        if self.window is not None and not LEAST_VALUE <= self.window[0] < self.window[1] <= MOST_VALUE:
            raise PipelineError(f'"window" must rise, within {LEAST_VALUE} and {MOST_VALUE}, not {shown(self.window)}')

    def infer(self) -> ImageSpec:
        return ImageSpec(color=self.color)

    def plan(self, **made: Any) -> Plan:
        return Plan(
            is_gray=self.color == "gray",
            apply_exif_orientation=self.apply_exif_orientation,
            chroma=self.chroma,
            idct=self.idct,
            reduced=self.reduced,
            alpha=self.alpha,
            window=self.window,
            **made,
        )


class DecodeVideo(Drawing, FirstOp, frozen=True, tag="decode_video", kw_only=True):
    """Decode frames of one clip (MP4, MOV, Matroska, WebM or AVI; H.264, H.265, VP8, VP9, AV1 or MPEG-4).

    All frames share one geometry, and a random op draws once for the clip. FFmpeg decodes, through PyAV (``pip install
    "av>=17"``): the same pixels as PyAV's ``to_ndarray("rgb24")`` and torchcodec. The stream names the matrix
    and the range of the colours; if it names none, they are BT.601 and limited range, as in these. Sound and the shape
    of a pixel are ignored. Frames count from the first that decodes.

    Args:
        frames: how many.
        sample: which. ``uniform``: the first, the last, and others between them at equal distances
            (``i * (n - 1) // (frames - 1)`` of n). ``first``: the first ones. ``random``: one of each of ``frames``
            equal parts, in training. ``{"step": n}``: every n-th. ``{"fps": f}``: those shown at times 1 / f s apart.
        start: where ``step`` and ``fps`` begin: ``first``: with the first frame; ``middle``: with equal parts left out
            before and behind; ``random``, in training.
        short: for a clip with too few frames: ``refuse``, or ``repeat`` some of them; ``step`` and ``fps`` repeat the
            last one.
        color: order of the channels; or ``gray``, the luma of BT.601 of the colours, whatever matrix the stream names,
            as PyAV's ``to_ndarray("gray")``.
        apply_rotation: turn the frames as the container says.
    """

    frames: Annotated[int, Within(1, MAX_FRAMES)]
    sample: Literal["uniform", "first", "random"] | dict[str, float] = "uniform"
    start: Start = "first"
    short: Literal["refuse", "repeat"] = "refuse"
    color: Color = "rgb"
    apply_rotation: bool = True

    def described(self, image: ImageSpec, before: Lowered) -> str:
        color = self.color if self.color == "gray" else self.color.upper()
        return f"decode {self.sampling} to {color}{', turned as the container says' * self.apply_rotation}"

    def check(self) -> None:
        if isinstance(self.sample, dict):
            ((rule, by),) = [*self.sample.items()] if len(self.sample) == 1 else [("", 0.0)]
            if rule not in ("step", "fps") or not LEAST_RATE <= by <= MAX_FRAMES or (rule == "step" and by != int(by)):
                raise PipelineError('"sample" must be a word, {"step": 2} in whole frames, or {"fps": 5}')
        elif self.start != "first":
            raise PipelineError('"start" goes with "sample": {"step": ...} and {"fps": ...}')
        if self.is_random and self.only != "training":
            raise PipelineError(
                'random frames are for training: write "only": "training", and beside it another decode_video with '
                '"only": "serving"'
            )

    @property
    def is_random(self) -> bool:
        """Tell whether the frames are drawn."""
        return self.sample == "random" or self.start == "random"

    @property
    def blocks(self) -> int:
        """A number for each frame, or one for the first."""
        return -(-self.frames // 4) if self.sample == "random" else 1

    def draw(self, height: int, width: int, uniforms: Uniforms) -> Words:
        """The numbers as they are; their choice depends on the times of the frames."""
        count = self.frames if self.sample == "random" else 1
        return {"uniforms": uniforms(0, self.blocks).ravel()[:count].tolist()}

    def in_words(self) -> str:
        return str(self.sampling)

    @property
    def sampling(self) -> Sampling:
        """Choice of frames, as ``Sampling`` has it."""
        repeats = self.short == "repeat"
        if isinstance(self.sample, dict):
            ((rule, by),) = self.sample.items()
            step = Fraction(by).limit_denominator(1_000_000)
            kind: Rule = "fps" if rule == "fps" else "step"
            return Sampling(frames=self.frames, rule=kind, by=step, start=self.start, repeats=repeats)
        rules: dict[str, Rule] = {"uniform": "uniform", "first": "step", "random": "segments"}
        return Sampling(frames=self.frames, rule=rules[self.sample], repeats=repeats)

    def infer(self) -> ImageSpec:
        return ImageSpec(frames=self.frames, color=self.color)

    def plan(self, **made: Any) -> Plan:
        if any(spec.is_region for spec in made["inputs"].values()):
            raise PipelineError("ops: boxes are cut out of images, and decode_video gives clips")
        drawn = RandomStep(self.name or "decode_video#0", self) if self.is_random else None
        clip = ClipPlan(self.sampling, drawn, self.apply_rotation)
        return Plan(is_gray=self.color == "gray", clip=clip, **made)


class Pixels(FirstOp, frozen=True, tag="pixels", kw_only=True):
    """Take images that are pixels already, in place of ``decode``: uint8 arrays [height, width, 3], 0 to 255.

    A gray image is [height, width, 1] or, in Python, [height, width]. From Triton's clients they come as UINT8 tensors
    [n, height, width, channels], of one size in a request. In Python they are arrays of NumPy, PyTorch, CuPy or others
    that NumPy or CuPy reads without a copy, with any strides. The arrays are read, and never written to. Of RGB and BGR
    pixels that are resized, what the resize reads is copied once; gray ones, and images that are only cropped, are not.
    Nothing is known of an EXIF orientation: who decodes turns the image upright.

    Arrays of float32 hold whole levels, 0 to 255, and are taken as uint8: a value between two levels, or outside, is
    refused.

    Args:
        color: order of the channels from here on, as in ``decode``.
        given: order of the channels of the arrays that come, where that is another: OpenCV and most cameras give
            ``bgr``.
        dtype: of the arrays.
        layout: of the arrays: ``hwc``, or ``chw``: [channels, height, width].
    """

    color: Color = "rgb"
    given: Literal["rgb", "bgr"] | None = None
    dtype: Literal["uint8", "float32"] = "uint8"
    layout: FrameLayout = "hwc"
    said = "{0.frames!s}"

    def check(self) -> None:
        if self.only is not None:
            raise PipelineError('"only": both sides take the same pixels: leave it out')
        if self.given is not None and self.color == "gray":
            raise PipelineError('"given" is an order of three channels, and with "color": "gray" there is one')

    @property
    def frames(self) -> Frames:
        """Form of the arrays that come."""
        return Frames(self.given or self.color, self.dtype, self.layout)

    def infer(self) -> ImageSpec:
        return ImageSpec(color=self.color)

    def plan(self, **made: Any) -> Plan:
        return Plan(is_gray=self.color == "gray", takes=self.frames, **made)
