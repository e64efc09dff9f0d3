"""A notebook on Spark; cells begin with `# %%`. Editors run them one by one, `python` all.

pip install 'ternmq[spark]'
tern up &
python examples/15_spark.py
"""

# %% Some orders, and somebody who handles them
import os
import tempfile

from pyspark.sql import functions as f

import ternmq.sync
from ternmq.pipeline import spark_session

URL = os.environ.get("TERN_URL", "tern://127.0.0.1:7700")
TOPIC = "example.spark"

with ternmq.sync.connect(URL, app="example-shop", codec="json") as mq:
    mq.send_many(TOPIC, [{"customer": f"c-{n % 7}", "cents": n * 10} for n in range(100)])
    with mq.consumer(TOPIC, group="billing") as consumer:
        for count, message in enumerate(consumer, 1):
            message.ack()
            if count == 40:
                break
        consumer.flush()

# %% A session; on a cluster: spark_session("notebook", master="spark://…")
spark = spark_session("notebook", master="local[2]")
orders = spark.read.format("tern").options(url=URL, subscribe=TOPIC).load()
print(f"batch   {orders.count()} messages with {', '.join(orders.columns[:5])} …")

# %% SQL over the bodies
text = f.col("body").cast("string")
parsed = orders.select(f.from_json(text, "customer string, cents long").alias("o")).select("o.*")
for row in parsed.groupBy("customer").sum("cents").orderBy(f.desc("sum(cents)")).limit(2).collect():
    print(f"sql     {row.customer} spent {row['sum(cents)']} cents")

# %% A stream into a lake: what is there now; run it again for what came since
with tempfile.TemporaryDirectory() as lake:
    reader = spark.readStream.format("tern").options(url=URL, startingOffsets="earliest")
    stream = reader.option("subscribe", TOPIC).schema("id string, sequence long").load()
    writer = stream.writeStream.option("checkpointLocation", f"{lake}/checkpoint")
    writer.trigger(availableNow=True).start(f"{lake}/orders", format="parquet").awaitTermination()
    rows = spark.read.parquet(f"{lake}/orders")
    print(f"lake    {rows.count()} rows, {rows.select('id').distinct().count()} ids")

# %% What became of them
events = spark.read.format("tern").options(url=URL, stream="deliveries").load()
acked = events.where((f.col("topic") == TOPIC) & (f.col("event") == "acked"))
print(f"acked   {acked.select('sequence').distinct().count()} by {acked.first().group}")

# %% Clean up
spark.stop()
with ternmq.sync.connect(URL) as mq:
    mq.admin.delete_topic(TOPIC)
