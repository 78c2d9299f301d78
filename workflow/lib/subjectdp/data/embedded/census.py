"""Synthetic ACS person files: 51 regions of very different sizes, each with a distribution of its own."""

import io
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd

from subjectdp.data.acs_income import CODES, REGIONS, file_name
from subjectdp.errors import expected
from subjectdp.io import atomic
from subjectdp.noise.keys import Purpose, numpy_generator

FEWEST = 30  # people of a region
_TIMESTAMP = (2019, 1, 1, 0, 0, 0)


def write_files(folder: Path, subjects: int, items_per_subject: int, seed: int) -> list[Path]:
    """Writes the 51 zips with about ``subjects`` times ``items_per_subject`` people in all; returns their paths."""
    people = subjects * items_per_subject
    if people < FEWEST * len(REGIONS):
        allowed = f"such that subjects times items are at least {FEWEST * len(REGIONS)} for acs_income"
        raise expected("data.embedded.items_per_subject", items_per_subject, allowed)
    generator = numpy_generator(seed, Purpose.EMBEDDED_DATA, "census")
    shares = np.exp(generator.normal(0, 1.0, len(REGIONS)))
    spare = people - FEWEST * len(REGIONS)
    sizes = FEWEST + np.floor(spare * shares / shares.sum()).astype(int)
    paths = []
    for number, (region, size) in enumerate(zip(REGIONS, sizes.tolist(), strict=True)):
        path = folder / file_name(region)
        atomic.write_bytes(path, _zipped(f"psam_p{number + 1:02d}.csv", _people(size, generator)))
        paths.append(path)
    return paths


def _people(size: int, generator: np.random.Generator) -> pd.DataFrame:
    """People of one region, about a tenth of whom the task drops; wages follow schooling, hours, age and occupation."""
    level, slope = generator.normal(11.0, 0.2), generator.normal(0.12, 0.03)
    age, hours = generator.integers(10, 90, size), generator.integers(0, 70, size)
    school, work = generator.integers(1, 25, size), generator.integers(0, 20, size)
    logs = level + slope * (school - 16) + 0.02 * (hours - 40) + 0.04 * (work - 10)
    logs += -0.0006 * (age - 50) ** 2 + generator.normal(0, 0.5, size)
    columns = {name: generator.choice(np.array(codes), size) for name, codes in CODES.items()}
    columns |= {"AGEP": age, "SCHL": school, "WKHP": hours, "OCCP": 500 * work + generator.integers(0, 500, size)}
    columns |= {"POBP": generator.choice([6, 36, 48, 110, 210, 303, 420], size), "PWGTP": np.full(size, 100)}
    columns |= {"PINCP": np.rint(np.exp(logs) / 10).astype(int) * 10, "SERIALNO": np.arange(size)}
    return pd.DataFrame(columns)


def _zipped(name: str, table: pd.DataFrame) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(zipfile.ZipInfo(name, _TIMESTAMP), table.to_csv(index=False))
    return packed.getvalue()
