"""Real Kafka, schema registries and Spark on this machine, for tests, demos and benchmarks.

The public names of this room; all else may change without notice.
"""

from isthmus.sandbox.box import Sandbox
from isthmus.sandbox.kafka import Broker, KafkaSite
from isthmus.sandbox.registry import Registry
from isthmus.sandbox.spark import SparkCluster
from isthmus.sandbox.spec import DEFAULT_KAFKA, KafkaSpec

__all__ = ["DEFAULT_KAFKA", "Broker", "KafkaSite", "KafkaSpec", "Registry", "Sandbox", "SparkCluster"]
