"""Render deploy/chart for each of a JSON list of values on standard input: `python -m tests.project.chart_renderer`.

Writes a JSON list: the YAML of each, or {"error": text}. Helm's library brings Go's runtime into the process, so
that process is not the one of the tests.
"""

import json
import sys

from helm_python import Chart, HelmError

from tests.daemons import ROOT


def main() -> None:
    results: list[object] = []
    with Chart.load(ROOT / "deploy" / "chart") as chart:
        for values in json.load(sys.stdin):
            try:
                chart.validate_schema(values)
                files = chart.render(values, name="mq", namespace="prod")
                results.append([text for name, text in files.items() if not name.endswith("NOTES.txt")])
            except HelmError as error:
                results.append({"error": str(error)})
    json.dump(results, sys.stdout)


if __name__ == "__main__":
    main()
