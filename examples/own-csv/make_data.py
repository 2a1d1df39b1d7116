"""Writes patients.csv: synthetic patients of four hospitals. Replace the file with your own table."""

from __future__ import annotations

import csv
import random
from pathlib import Path

HOSPITALS = {"north": 5.0, "south": -5.0, "east": 4.0, "west": -4.0}  # effect of smoking on the cost
PATIENTS = 150  # of each hospital


def patients(seed: int = 0) -> list[dict[str, object]]:
    draw = random.Random(seed)
    rows: list[dict[str, object]] = []
    for hospital, effect in HOSPITALS.items():
        for _ in range(PATIENTS):
            age, bmi = draw.randint(18, 90), round(draw.gauss(27, 4), 1)
            smoker = draw.random() < 0.4
            cost = 20 + 0.1 * age + 0.3 * bmi + effect * smoker + draw.gauss(0, 0.7)
            rows.append(
                {
                    "hospital": hospital,
                    "age": age,
                    "bmi": bmi,
                    "sex": draw.choice(["f", "m"]),
                    "smoker": "yes" if smoker else "no",
                    "cost": round(cost, 2),
                }
            )
    return rows


def write(path: Path) -> None:
    rows = patients()
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, fieldnames=list(rows[0]))
        table.writeheader()
        table.writerows(rows)


if __name__ == "__main__":
    file = Path(__file__).with_name("patients.csv")
    write(file)
    print(file)
