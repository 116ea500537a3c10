"""Imitations of torchvision's transforms, which have the attributes that the importer reads.

`v1` and `v2` have the names of torchvision's modules, so that a line of `tests/importers/imports.txt` contains a source
as users write it. The parity tests read the same lines with the real modules.
"""

from pixprep.importers.torchvision import from_torchvision

AUGMENTING = "interpolation='nearest', fill=None"
MIXED = "severity=3, mixture_width=3, chain_depth=-1, alpha=1.0, all_ops=True"
JITTERED = "brightness=None, contrast=None, saturation=None, hue=None"
RESIZED = "interpolation='bilinear', antialias=True"
ARGUMENTS = {
    "AugMix": f"{MIXED}, interpolation='bilinear', fill=None",
    "AutoAugment": f"policy='imagenet', {AUGMENTING}",
    "CenterCrop": "size",
    "ClampBoundingBoxes": "clamping_mode='auto'",
    "ColorJitter": JITTERED,
    "Compose": "transforms",
    "ConvertBoundingBoxFormat": "format",
    "ConvertImageDtype": "dtype",
    "ElasticTransform": "alpha=50.0, sigma=5.0, interpolation='bilinear', fill=0",
    "GaussianBlur": "kernel_size, sigma=(0.1, 2.0)",
    "Grayscale": "num_output_channels=1",
    "Normalize": "mean, std, inplace=False",
    "Pad": "padding, fill=0, padding_mode='constant'",
    "RandAugment": f"num_ops=2, magnitude=9, num_magnitude_bins=31, {AUGMENTING}",
    "RandomAdjustSharpness": "sharpness_factor, p=0.5",
    "RandomAffine": "degrees, translate=None, scale=None, shear=None, interpolation='nearest', fill=0, center=None",
    "RandomApply": "transforms, p=0.5",
    "RandomChoice": "transforms, p=None",
    "RandomCrop": "size, padding=None, pad_if_needed=False, fill=0, padding_mode='constant'",
    "RandomErasing": "p=0.5, scale=(0.02, 0.33), ratio=(0.3, 3.3), value=0, inplace=False",
    "RandomGrayscale": "p=0.1",
    "RandomIoUCrop": "min_scale=0.3, max_scale=1.0, min_aspect_ratio=0.5, max_aspect_ratio=2.0, sampler_options=None, "
    "trials=40",
    "RandomOrder": "transforms",
    "RandomPerspective": "distortion_scale=0.5, p=0.5, interpolation='bilinear', fill=0",
    "RandomPhotometricDistort": "brightness=(0.875, 1.125), contrast=(0.5, 1.5), saturation=(0.5, 1.5), "
    "hue=(-0.05, 0.05), p=0.5",
    "RandomPosterize": "bits, p=0.5",
    "RandomResize": f"min_size, max_size, {RESIZED}",
    "RandomResizedCrop": f"size, scale=(0.08, 1.0), ratio=(3 / 4, 4 / 3), {RESIZED}",
    "RandomRotation": "degrees, interpolation='nearest', expand=False, center=None, fill=0",
    "RandomShortestSize": f"min_size, max_size=None, {RESIZED}",
    "RandomSolarize": "threshold, p=0.5",
    "RandomZoomOut": "fill=0, side_range=(1.0, 4.0), p=0.5",
    "Resize": "size, interpolation='bilinear', max_size=None, antialias=True",
    "SanitizeBoundingBoxes": "min_size=1.0, min_area=1.0, labels_getter='default'",
    "ScaleJitter": f"target_size, scale_range=(0.1, 2.0), {RESIZED}",
    "ToDtype": "dtype, scale=False",
    "TrivialAugmentWide": f"num_magnitude_bins=31, {AUGMENTING}",
    **dict.fromkeys(("Identity", "PILToTensor", "RGB", "ToImage", "ToPureTensor", "ToTensor"), ""),
    **dict.fromkeys(("RandomAutocontrast", "RandomEqualize", "RandomHorizontalFlip"), "p=0.5"),
    **dict.fromkeys(("RandomInvert", "RandomVerticalFlip"), "p=0.5"),
}
"""Arguments of each constructor, with torchvision's defaults."""
PAIRS = {"CenterCrop": ("size",), "RandomCrop": ("size",), "RandomResizedCrop": ("size",)}
PAIRS |= {"GaussianBlur": ("kernel_size", "sigma"), "ElasticTransform": ("alpha", "sigma")}
"""Arguments that a transform stores as two numbers if one number is given."""


def transform(name, *, module="torchvision.transforms.v2._x", **fields):
    """Return an imitation of a transform with these attributes."""
    made = type(name, (), {"__module__": module})()
    vars(made).update(fields)
    return made


def attributes(name, fields, *, is_v2):
    """Return the attributes in which a constructor stores its arguments."""
    for each in PAIRS.get(name, ()):
        if isinstance(fields[each], int | float):
            fields[each] = (fields[each],) * 2
    for each in ("degrees", "shear"):
        if isinstance(fields.get(each), int | float):
            fields[each] = (-float(fields[each]), float(fields[each]))
    if name == "ColorJitter":
        for each, amount in fields.items():
            if isinstance(amount, int | float):
                middle, least = (0, -amount) if each == "hue" else (1, max(0, 1 - amount))
                fields[each] = (least, middle + amount) if amount else None
    if name == "RandomChoice" and is_v2:
        weights = fields["p"] or [1] * len(fields["transforms"])
        fields["p"] = [weight / sum(weights) for weight in weights]
    if name == "RandomCrop" and is_v2 and fields["padding"]:
        sides = fields["padding"]
        left, top, right, bottom = [sides] * 4 if isinstance(sides, int) else [*sides] * (4 // len(sides))
        fields["padding"] = [left, right, top, bottom]
    if name == "RandomErasing" and is_v2:
        value = fields["value"]
        fields["value"] = None if value == "random" else [value] if isinstance(value, int | float) else list(value)
    if name == "RandomIoUCrop":
        fields["options"] = fields.pop("sampler_options") or [0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0]
    if name == "RandomShortestSize":
        fields["min_size"] = [fields["min_size"]] if isinstance(fields["min_size"], int) else list(fields["min_size"])
    return fields


class Module:
    """Imitation of ``torchvision.transforms`` or ``torchvision.transforms.v2``."""

    def __init__(self, package):
        self.package = package

    def __getattr__(self, name):
        is_v2 = self.package.endswith("v2")
        read = eval(f"lambda {ARGUMENTS.get(name, '*_, **fields')}: dict(locals())")  # noqa: S307 - the table above

        def make(*given, **named):
            fields = read(*given, **named)
            fields = attributes(name, fields, is_v2=is_v2) if name in ARGUMENTS else fields["fields"]
            return transform(name, module=f"{self.package}._x", **fields)

        return make


v1, v2 = Module("torchvision.transforms"), Module("torchvision.transforms.v2")
TO_IMAGE = v2.ToImage()


def compose(*parts):
    return v2.Compose(list(parts))


class Reader:
    """Reads the sources of a table with torchvision's modules, or with imitations of them."""

    def __init__(self, v1, v2, **names):
        self.v1, self.v2 = v1, v2
        self.fixed = v2.Resize((40, 36))
        self.names = names | {"v1": v1, "v2": v2, "m": v2, "FIXED": self.fixed}
        self.names |= {name: getattr(self, name) for name in ("served", "trained", "always")}
        self.names["from_torchvision"] = from_torchvision
        self.names |= {"MEAN": (0.485, 0.456, 0.406), "STD": (0.229, 0.224, 0.225)}
        self.names["FILL"] = {names["Mask"]: 250, "others": (123, 117, 104)}

    def served(self, *parts, **options):
        """Return the ops after ``decode`` of transforms for serving."""
        return list(from_torchvision(self.v2.Compose([*parts]), **options).ops[1:])

    def trained(self, *parts, **options):
        """Return the ops between ``decode`` and ``tensor`` of transforms for training, without a first ``FIXED``."""
        ops = from_torchvision(training=self.v2.Compose([*parts, self.v2.ToImage()]), **options).ops
        return list(ops[1 + (parts[0] is self.fixed) : -1])

    def always(self, *parts):
        """Return the ops of transforms for training whose random parameters have only one possible value."""
        return self.trained(self.fixed, *parts)


class Mask:
    """Imitation of the class of masks, by which a ``fill`` distinguishes them from images."""


class Dtype(str):
    """Imitation of PyTorch's dtypes."""

    __slots__ = ()
    __repr__ = str.__str__


Mask.__module__ = "torchvision.tv_tensors"
FILTERS = {name.upper(): name for name in ("nearest", "bilinear", "bicubic", "box", "lanczos")}
DTYPES = {name: Dtype(f"torch.{name}") for name in ("float32", "float16", "uint8")}
NAMES = Reader(v1, v2, Mask=Mask, SVHN="svhn", **FILTERS, **DTYPES).names
"""Names that a line in the tables of `tests/importers` may use."""
