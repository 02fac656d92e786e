"""What follows the data of a link, and how often it is compared.

Invariant: each resource has a model of its own in a file of its own (``sync_*.py``); this one only gathers them.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, Field

from isthmus.config.base import Model
from isthmus.config.quantities import Switch
from isthmus.config.sync_acls import SyncAcls, acls_input
from isthmus.config.sync_configs import SyncConfigs, configs_input
from isthmus.config.sync_groups import GroupEntry, SyncGroups, groups_input
from isthmus.config.sync_schemas import SubjectEntry, SyncSchemas, schemas_input


class Sync(Model):
    """What follows the data: configs, ACLs, consumer groups, schemas."""

    configs: Annotated[
        SyncConfigs, BeforeValidator(configs_input, json_schema_input_type=SyncConfigs | Switch | None)
    ] = Field(default=SyncConfigs(), description="Settings of topics; `off` leaves those of existing topics alone.")
    acls: Annotated[SyncAcls, BeforeValidator(acls_input, json_schema_input_type=SyncAcls | Switch | None)] = Field(
        default=SyncAcls(), description="ACLs; `on` copies them."
    )
    groups: Annotated[
        SyncGroups,
        BeforeValidator(groups_input, json_schema_input_type=SyncGroups | Switch | list[GroupEntry] | str | None),
    ] = Field(
        default=SyncGroups(), description="Consumer groups; a list is short for `include`, `off` leaves them alone."
    )
    schemas: Annotated[
        SyncSchemas,
        BeforeValidator(schemas_input, json_schema_input_type=SyncSchemas | Switch | list[SubjectEntry] | str | None),
    ] = Field(default=SyncSchemas(), description="Schemas; `on` copies them, a list is short for `include`.")
