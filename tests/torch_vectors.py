"""What PyTorch 2.13 made of noise on a CPU with AVX-512: the SHA-256 of uint8 (3, height, width), by the resize.

``parity/test_torch_profile.py`` asks PyTorch again where it is installed.
"""

# (filter, height and width of the noise, height and width of the result)
FROZEN = {
    ("bilinear", (61, 97), (224, 224)): "df43c205a91d6e867808e812c3c26fe91aae6f0806c7e6df8fc90c5b4f2858d8",
    ("bilinear", (300, 333), (56, 64)): "08bc57c65fef0a496c74d6f9e3104ac478f7762328807b4157e141e0023be969",
    ("bilinear", (128, 90), (100, 90)): "aa418286654aabd670493bd2d5913a0e15a6e2466bbb1794c2fa9598b3e181f5",
    ("bicubic", (61, 97), (224, 224)): "dbb16468cbf368c4257065b5c99c7a851d5f3561d26779d7cc9d346312fd367b",
    ("bicubic", (300, 333), (56, 64)): "d008187b306cd51879dad0d00f4d63b292981d6ec409a54d5acc1d8b29fdbe1c",
    ("bicubic", (333, 300), (232, 231)): "22a773414ff7bd14e62e66ff421669d09396b46b14f58e9c450ffef8b9307af0",
}
