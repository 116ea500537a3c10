"""Train a Keras model on TFRecord files, which are first created from the sample photos.

python keras_tfrecord.py --output trained
"""

import argparse
from pathlib import Path

import keras
import tensorflow as tf
from cut_photos import cut_photos

import pixprep as pp

PIPELINE = pp.Pipeline(
    [
        pp.decode(),
        pp.random_resized_crop(height=64, width=64, scale=(0.35, 1.0), like="tensorflow"),
        pp.random_flip(),
        pp.resize(height=64, width=64, like="tensorflow", only="serving"),
        pp.normalize(mean=[0.5, 0.5, 0.5], std=[0.5, 0.5, 0.5]),
        pp.tensor(layout="hwc"),
    ]
)


def write(folder: Path, path: Path) -> None:
    """Write the images and labels of a folder to a TFRecord file, with the usual feature names."""
    with tf.io.TFRecordWriter(str(path)) as file:
        for sample in pp.read.files(folder):
            image = tf.train.Feature(bytes_list=tf.train.BytesList(value=[sample["image"].read_bytes()]))
            label = tf.train.Feature(int64_list=tf.train.Int64List(value=[sample["label"]]))
            features = tf.train.Features(feature={"image/encoded": image, "image/class/label": label})
            file.write(tf.train.Example(features=features).SerializeToString())


def main() -> None:
    """Train with the training mode of the pipeline, and evaluate with its serving mode."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("trained"))
    folder = parser.parse_args().output
    cut_photos(folder / "photos")
    for part in ("train", "valid"):
        write(folder / "photos" / part, folder / f"{part}.tfrecord")

    train = pp.read.tfrecord(folder / "train.tfrecord", label="image/class/label")
    valid = pp.read.tfrecord(folder / "valid.tfrecord", label="image/class/label")
    keras.utils.set_random_seed(0)
    layers = [keras.layers.Conv2D(filters, 3, strides=2, activation="relu") for filters in (16, 32, 64)]
    model = keras.Sequential([*layers, keras.layers.GlobalAveragePooling2D(), keras.layers.Dense(2)])
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
    with pp.Loader(train, PIPELINE.for_training(), batch_size=24, shuffle=True, seed=1) as loader:
        model.fit(loader.keras("tensor", "label"), epochs=15, verbose=2)
    with pp.Loader(valid, PIPELINE.for_serving(), batch_size=40) as loader:
        _, accuracy = model.evaluate(loader.keras("tensor", "label"), verbose=0)
    print(f"accuracy on {len(valid)} validation photos: {accuracy:.3f}")


if __name__ == "__main__":
    main()
