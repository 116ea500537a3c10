"""Train in several processes, each on its shard. The global batches are the same for any number of processes.

python -m torch.distributed.run --standalone --nproc-per-node 2 pytorch_shards.py FOLDER
"""

import argparse
import zlib
from pathlib import Path

import numpy as np
import torch
from torch import distributed, nn

import pixprep as pp

PIPELINE = pp.load(Path(__file__).with_name("photos.json")).for_training()
GLOBAL_BATCH = 48


def main() -> None:
    """Train for two epochs, and print the samples of each global batch and a checksum of its pixels."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="folder of the photos, with one folder per class")
    photos = pp.read.files(parser.parse_args().folder)
    distributed.init_process_group("gloo")
    shard = rank, world = distributed.get_rank(), distributed.get_world_size()

    torch.manual_seed(0)
    network = nn.Sequential(nn.Flatten(), nn.Linear(3 * 64 * 64, len(photos.classes)))
    model = nn.parallel.DistributedDataParallel(network)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    loader = pp.Loader(photos, PIPELINE, batch_size=GLOBAL_BATCH // world, shuffle=True, seed=1, shard=shard)
    for epoch in range(2):
        seen: list[int] = []
        for batch in loader:
            images, labels = batch.torch("tensor", "label")
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()  # averages the gradients of all processes
            optimizer.step()
            parts = [None] * world
            distributed.all_gather_object(parts, (batch["index"], batch["tensor"]))  # only for the output
            indices, tensors = (np.concatenate(column) for column in zip(*parts, strict=True))
            seen += indices.tolist()
            if rank == 0:
                print(f"epoch {epoch}: pixels {zlib.crc32(tensors):08x}, samples {indices.tolist()}")
        if rank == 0:
            print(f"epoch {epoch}: {len(seen)} of {len(photos)} samples, {len(set(seen))} of them distinct")
    loader.close()
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
