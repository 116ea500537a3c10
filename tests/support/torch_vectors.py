"""Stored results of PyTorch 2.13 on a CPU with AVX-512: the SHA-256 of uint8 (3, height, width), for each resize.

The inputs are noise. If PyTorch is installed, ``parity/test_torch_profile.py`` computes the results again.
"""

# (filter, height and width of the noise, height and width of the result)
FROZEN = {
    ("bilinear", (61, 97), (224, 224)): "df43c205a91d6e867808e812c3c26fe91aae6f0806c7e6df8fc90c5b4f2858d8",
    ("bilinear", (300, 333), (56, 64)): "08bc57c65fef0a496c74d6f9e3104ac478f7762328807b4157e141e0023be969",
    ("bilinear", (128, 90), (100, 90)): "aa418286654aabd670493bd2d5913a0e15a6e2466bbb1794c2fa9598b3e181f5",
    ("bicubic", (61, 97), (224, 224)): "dbb16468cbf368c4257065b5c99c7a851d5f3561d26779d7cc9d346312fd367b",
    ("bicubic", (300, 333), (56, 64)): "d008187b306cd51879dad0d00f4d63b292981d6ec409a54d5acc1d8b29fdbe1c",
    ("bicubic", (333, 300), (232, 231)): "22a773414ff7bd14e62e66ff421669d09396b46b14f58e9c450ffef8b9307af0",
    ("bilinear", (61, 97), (24, 1)): "11fdfe60a83c5028742c8bc0b261cdc54a8ed5dd9bb9283831ce0d7f58026b0e",
    ("bilinear", (1, 97), (40, 1)): "3450641f3198da3cf9762d7201384bdf1d4954f9ed67c3eb6c332e01b728384c",
    ("bilinear", (61, 97), (1, 24)): "fb6fce7199065fd2bd2e0ac67a946de38d6edb9231f6ad1db9f2babfab7b7c63",
    ("bilinear", (300, 1), (1, 7)): "8a9d4b7e407e8797a15891b1fd2b322cbd4aa67fee913c8ad6ab175c3317136d",
    ("bilinear", (9, 40), (9, 1)): "9ae096465ded21626e25be1f50c9866199cd5f0436bbec78d3c9f15226428353",
    ("bicubic", (61, 97), (24, 1)): "e55768c4cb4359185a9987879b65290bb42933af85b991e8620e0d8bf0d7de08",
    ("bicubic", (1, 97), (40, 1)): "4d7c1361f0bb78b8c0ba9c9d544cd18057384d7fce19aaab0e48c4dc0b05997b",
    ("bicubic", (61, 97), (1, 24)): "d94d20db127a3caa78c639a172ab99ea3eb21619f8081c2555a27e73ddeb2a14",
    ("bicubic", (300, 1), (1, 7)): "36849f394e132a2d780075e658cc66c7e18f9b04869c5f1d7e67fed6c66131fd",
    ("bicubic", (9, 40), (9, 1)): "9d3bee3300856a69eb65a14e416d1937747750f9cf6b4c8fe2de2072fcdf285e",
}
