"""What every test asks of a stock client."""

from __future__ import annotations

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic


def create(admin: AdminClient, topic: NewTopic) -> None:
    """Create a topic that is nobody else's."""
    try:
        admin.create_topics([topic], request_timeout=30)[topic.topic].result(30)
    except KafkaException as refused:
        # The client asks again when a busy broker does not answer in time, and then hears of its own first request.
        if refused.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise
