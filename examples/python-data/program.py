"""Sums up sales by region: reads every table of inputs that it may read, writes out/totals.csv."""

import csv
import pathlib
import sys
from collections import Counter


def main():
    totals = Counter()
    for table in sorted(pathlib.Path("inputs").glob("*.csv")):
        try:
            with table.open(newline="", encoding="utf-8") as f:
                for row in csv.DictReader(f):
                    totals[row["region"]] += int(row["units"]) * int(row["price"])
        except OSError as e:
            print(f"cannot read {table}: {e.strerror}", file=sys.stderr)
    with open("out/totals.csv", "w", newline="", encoding="utf-8") as f:
        w = csv.writer(f)
        w.writerow(["region", "total"])
        w.writerows(sorted(totals.items()))
    for region, total in sorted(totals.items()):
        print(region, total)


if __name__ == "__main__":
    main()
