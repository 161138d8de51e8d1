"""`penstock pipeline`: what topics retain into a lake of Parquet files, and from there to rollups, a report, and back.

A lake is a directory. Every job writes its data first and then one manifest, by rename: what has no manifest does not exist,
and is written over by the next run. So each job can be killed at any moment and started again. See docs/spark.md.
"""
