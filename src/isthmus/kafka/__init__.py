"""The wire: connections, raw fetch and produce, transactions, admin calls with partial failures.

Everything here speaks Kafka's protocol through kafka-python's connection layer (versions negotiated, TLS and
SASL included) and knows nothing of links, rules or Spark.
"""
