"""Attack: an image of a hundred thousand frames or pages.

Defence: only the first is decoded; the others are not even looked for.
Outcome: the cost of one frame.
"""

import pytest
from PIL import Image

from attacks.forged import gif
from support.images import save

FRAMES = [Image.new("RGB", (16, 16), (number % 256, number // 256, 9)) for number in range(1_000)]
ANIMATIONS = {
    "GIF of 100,000 frames": gif(4, 4, frames=100_000),
    "WebP of 1,000 frames": save(FRAMES[0], "WEBP", save_all=True, append_images=FRAMES[1:], duration=1),
    "PNG of 1,000 frames": save(FRAMES[0], "PNG", save_all=True, append_images=FRAMES[1:], duration=1),
    "TIFF of 300 pages": save(FRAMES[0], "TIFF", save_all=True, append_images=FRAMES[1:300]),  # in n * n by Pillow
}


@pytest.mark.parametrize("name", ANIMATIONS)
def test_the_first_frame_is_all_that_is_decoded(measure, name):
    measure(ANIMATIONS[name]).within("ok", mib=16, seconds=0.3)


def test_frames_of_50_megapixels_without_data_are_refused(measure):
    measure(gif(7071, 7071, frames=1_000)).within("TRUNCATED", mib=16)
