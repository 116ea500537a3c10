"""Runs the example of docs/sources.md that reads NIfTI and DICOM files, and checks its tensors and masks."""

import re
from pathlib import Path

import numpy as np
import pytest

nibabel = pytest.importorskip("nibabel", reason="NO NIBABEL: the program of docs/sources.md was not run")
pydicom = pytest.importorskip("pydicom", reason="NO PYDICOM: the program of docs/sources.md was not run")

PAGE = (Path(__file__).parents[2] / "docs" / "sources.md").read_text(encoding="utf-8").partition("## NIfTI")[2]
PROGRAM, PRINTED = re.search(r"```python\n(.*?)```(?:\n\n```\n(.*?)```)?", PAGE, re.DOTALL).groups()


def write_dicom(path, values):
    found = pydicom.Dataset()
    found.file_meta = pydicom.dataset.FileMetaDataset()
    found.file_meta.TransferSyntaxUID = pydicom.uid.ExplicitVRLittleEndian
    found.file_meta.MediaStorageSOPClassUID = found.SOPClassUID = pydicom.uid.CTImageStorage
    found.file_meta.MediaStorageSOPInstanceUID = found.SOPInstanceUID = pydicom.uid.generate_uid()
    found.RescaleIntercept, found.RescaleSlope = -1024, 1
    found.set_pixel_data(values, "MONOCHROME2", 12)
    found.save_as(path, enforce_file_format=True)


def test_the_program_of_the_page_reads_both_formats(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(1)
    volume = random.integers(-1000, 1000, (96, 80, 4)).astype(np.int16)
    for name, values in (("ct", volume), ("labels", (volume > 0).astype(np.uint8))):
        nibabel.save(nibabel.Nifti1Image(values, np.eye(4)), f"{name}.nii.gz")
    dicom = random.integers(0, 4096, (64, 80)).astype(np.uint16)
    write_dicom("chest.dcm", dicom)
    names = {}
    exec(PROGRAM, names)  # noqa: S102  (the program of our own page)
    assert capsys.readouterr().out == PRINTED
    expected = np.floor((np.clip(dicom - 1024.0, -1000, 400) + 1000) * 255 / 1400 + 0.5)
    assert np.array_equal(names["batch"]["tensor"][0, 0], expected[:, 8:72])
    (batch,) = names["pp"].Loader(
        names["Slices"]("ct.nii.gz", "labels.nii.gz"), names["soft_tissue"].for_training(), batch_size=4
    )
    for image, mask in zip(batch["tensor"], batch["mask"], strict=True):
        # the mask is 1 where the value is above 0; the window maps 0 to 102
        assert ((image[0] > 102) <= (mask == 1)).all()
        assert ((image[0] < 102) <= (mask == 0)).all()
