"""Convert a folder of photos into tensors with Spark: spark-submit spark_batch.py PHOTOS PIPELINE OUTPUT.

pip install . pyspark pandas pyarrow

Use the same pipeline file as the server. If a photo cannot be decoded, the column `error` contains the reason, and its
tensor is zero. Every node needs these packages in the Python environment that PYSPARK_PYTHON specifies.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
from pyspark.sql import SparkSession
from pyspark.sql.functions import pandas_udf

import pixprep as pp

photos, pipeline, output = sys.argv[1:]
text = Path(pipeline).read_text(encoding="utf-8")
spark = SparkSession.builder.config("spark.sql.execution.arrow.maxRecordsPerBatch", 32).getOrCreate()


@pandas_udf("tensor array<float>, error string")
def preprocess(encoded: Iterator[pd.Series]) -> Iterator[pd.DataFrame]:
    """Run the pipeline, with one engine per task. Tensors are flattened; the pipeline defines their shape."""
    with pp.Engine(pp.Pipeline.from_json(text), threads=1) as engine:
        for part in encoded:
            batch = engine.run_batch(list(part))
            errors = [None if error is None else str(error) for error in batch.errors]
            yield pd.DataFrame({"tensor": [each.ravel() for each in batch["tensor"]], "error": errors})


rows = spark.read.format("binaryFile").load(photos)
rows = rows.select("path", preprocess("content").alias("row")).select("path", "row.*")
rows.write.parquet(output)
