"""The file that spark-submit needs: `spark-submit --master URL .../pyspark_nsq/submit.py archive --lookupd ...`."""

from penstock.launch import pipeline

if __name__ == "__main__":
    pipeline()
