"""Writes the tables of parquet/: small ones of each kind that the reader knows, as first inputs of
its fuzz target. The images are a few bytes, which the reader does not look into."""

import json
import pathlib

import pyarrow as pa
import pyarrow.parquet as pq

HERE = pathlib.Path(__file__).with_name("parquet")
IMAGES = [b"\xff\xd8\xff" + bytes(range(n)) for n in (3, 0, 9, 5)]
IMAGE = {"_type": "Image"}
CLASSES = {"names": ["cat", "dog", "elk", "fox"], "_type": "ClassLabel"}


def table(columns, **features):
    made = pa.table(columns)
    if features:
        made = made.replace_schema_metadata(
            {"huggingface": json.dumps({"info": {"features": features}})}
        )
    return made


def structs(images):
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    return pa.array([image and {"bytes": image, "path": None} for image in images], kind)


def write(name, made, **options):
    usual = {"compression": "none", "use_dictionary": False, "write_statistics": False}
    pq.write_table(made, HERE / f"{name}.parquet", store_schema=False, **{**usual, **options})


HERE.mkdir(exist_ok=True)
described = table(
    {"image": structs(IMAGES), "label": pa.array([3, 1, 0, 2])}, image=IMAGE, label=CLASSES
)
write("structs", described)
write("groups", described, row_group_size=3)
write("pages", described, data_page_size=1, write_batch_size=1)
write("version2", described, data_page_version="2.0", compression={"label": "snappy"})
write("snappy", described, compression={"label": "snappy"}, use_dictionary=["label"])
write("gzip", described, compression="gzip")
write("dictionary", described, use_dictionary=True)
write("statistics", described, write_statistics=True, write_page_index=True)
plain = {"image": pa.array(IMAGES, pa.binary()), "number": pa.array([3, 1, 0, -1], pa.int32())}
write("bytes", table(plain))
write("nulls", table({"image": structs([None, *IMAGES[1:]]), "label": pa.array([1, 0, 1, 0])}))
write("null-label", table({"image": structs(IMAGES), "label": pa.array([1, None, 1, 0])}))
write("columns", table({"left": structs(IMAGES), **plain, "other": pa.array([[1], [], [2, 3], None])}))
write("empty", described.slice(0, 0))
