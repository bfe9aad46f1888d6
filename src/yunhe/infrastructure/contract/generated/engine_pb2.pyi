from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Isolation(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ISOLATION_UNSPECIFIED: _ClassVar[Isolation]
    ISOLATION_PER_PROJECT: _ClassVar[Isolation]
    ISOLATION_ONE_PROJECT: _ClassVar[Isolation]

class Level(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    LEVEL_UNSPECIFIED: _ClassVar[Level]
    LEVEL_END: _ClassVar[Level]
    LEVEL_EDGE: _ClassVar[Level]
    LEVEL_CENTRAL: _ClassVar[Level]

class Phase(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PHASE_UNSPECIFIED: _ClassVar[Phase]
    PHASE_PREPARING: _ClassVar[Phase]
    PHASE_STARTING: _ClassVar[Phase]
    PHASE_RUNNING: _ClassVar[Phase]
    PHASE_PAUSED: _ClassVar[Phase]
    PHASE_EXITED: _ClassVar[Phase]
    PHASE_UNKNOWN: _ClassVar[Phase]

class Ending(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ENDING_UNSPECIFIED: _ClassVar[Ending]
    ENDING_DONE: _ClassVar[Ending]
    ENDING_STOPPED: _ClassVar[Ending]
    ENDING_TIMED_OUT: _ClassVar[Ending]
    ENDING_OUT_OF_MEMORY: _ClassVar[Ending]
    ENDING_DISK_FULL: _ClassVar[Ending]
    ENDING_PREEMPTED: _ClassVar[Ending]
ISOLATION_UNSPECIFIED: Isolation
ISOLATION_PER_PROJECT: Isolation
ISOLATION_ONE_PROJECT: Isolation
LEVEL_UNSPECIFIED: Level
LEVEL_END: Level
LEVEL_EDGE: Level
LEVEL_CENTRAL: Level
PHASE_UNSPECIFIED: Phase
PHASE_PREPARING: Phase
PHASE_STARTING: Phase
PHASE_RUNNING: Phase
PHASE_PAUSED: Phase
PHASE_EXITED: Phase
PHASE_UNKNOWN: Phase
ENDING_UNSPECIFIED: Ending
ENDING_DONE: Ending
ENDING_STOPPED: Ending
ENDING_TIMED_OUT: Ending
ENDING_OUT_OF_MEMORY: Ending
ENDING_DISK_FULL: Ending
ENDING_PREEMPTED: Ending

class Target(_message.Message):
    __slots__ = ("address", "options")
    class OptionsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    address: str
    options: _containers.ScalarMap[str, str]
    def __init__(self, address: _Optional[str] = ..., options: _Optional[_Mapping[str, str]] = ...) -> None: ...

class Problem(_message.Message):
    __slots__ = ("code", "problem", "remedy", "fields")
    CODE_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    REMEDY_FIELD_NUMBER: _ClassVar[int]
    FIELDS_FIELD_NUMBER: _ClassVar[int]
    code: str
    problem: str
    remedy: str
    fields: _containers.RepeatedCompositeFieldContainer[FieldProblem]
    def __init__(self, code: _Optional[str] = ..., problem: _Optional[str] = ..., remedy: _Optional[str] = ..., fields: _Optional[_Iterable[_Union[FieldProblem, _Mapping]]] = ...) -> None: ...

class FieldProblem(_message.Message):
    __slots__ = ("field", "problem", "value", "did_you_mean")
    FIELD_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    DID_YOU_MEAN_FIELD_NUMBER: _ClassVar[int]
    field: str
    problem: str
    value: str
    did_you_mean: str
    def __init__(self, field: _Optional[str] = ..., problem: _Optional[str] = ..., value: _Optional[str] = ..., did_you_mean: _Optional[str] = ...) -> None: ...

class Done(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DescribePluginRequest(_message.Message):
    __slots__ = ("contracts",)
    CONTRACTS_FIELD_NUMBER: _ClassVar[int]
    contracts: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, contracts: _Optional[_Iterable[int]] = ...) -> None: ...

class DescribePluginResponse(_message.Message):
    __slots__ = ("manifest", "contract")
    MANIFEST_FIELD_NUMBER: _ClassVar[int]
    CONTRACT_FIELD_NUMBER: _ClassVar[int]
    manifest: Manifest
    contract: int
    def __init__(self, manifest: _Optional[_Union[Manifest, _Mapping]] = ..., contract: _Optional[int] = ...) -> None: ...

class Manifest(_message.Message):
    __slots__ = ("name", "version", "vendor", "summary", "contract", "entry", "command", "target", "options", "powers", "missing", "limits", "fields", "admin_options")
    class OptionsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class MissingEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    VENDOR_FIELD_NUMBER: _ClassVar[int]
    SUMMARY_FIELD_NUMBER: _ClassVar[int]
    CONTRACT_FIELD_NUMBER: _ClassVar[int]
    ENTRY_FIELD_NUMBER: _ClassVar[int]
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    POWERS_FIELD_NUMBER: _ClassVar[int]
    MISSING_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    FIELDS_FIELD_NUMBER: _ClassVar[int]
    ADMIN_OPTIONS_FIELD_NUMBER: _ClassVar[int]
    name: str
    version: str
    vendor: str
    summary: str
    contract: int
    entry: str
    command: _containers.RepeatedScalarFieldContainer[str]
    target: str
    options: _containers.ScalarMap[str, str]
    powers: _containers.RepeatedScalarFieldContainer[str]
    missing: _containers.ScalarMap[str, str]
    limits: PluginLimits
    fields: _containers.RepeatedCompositeFieldContainer[FieldMapping]
    admin_options: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, name: _Optional[str] = ..., version: _Optional[str] = ..., vendor: _Optional[str] = ..., summary: _Optional[str] = ..., contract: _Optional[int] = ..., entry: _Optional[str] = ..., command: _Optional[_Iterable[str]] = ..., target: _Optional[str] = ..., options: _Optional[_Mapping[str, str]] = ..., powers: _Optional[_Iterable[str]] = ..., missing: _Optional[_Mapping[str, str]] = ..., limits: _Optional[_Union[PluginLimits, _Mapping]] = ..., fields: _Optional[_Iterable[_Union[FieldMapping, _Mapping]]] = ..., admin_options: _Optional[_Iterable[str]] = ...) -> None: ...

class PluginLimits(_message.Message):
    __slots__ = ("memory_mib", "calls", "call_timeout_s")
    MEMORY_MIB_FIELD_NUMBER: _ClassVar[int]
    CALLS_FIELD_NUMBER: _ClassVar[int]
    CALL_TIMEOUT_S_FIELD_NUMBER: _ClassVar[int]
    memory_mib: int
    calls: int
    call_timeout_s: float
    def __init__(self, memory_mib: _Optional[int] = ..., calls: _Optional[int] = ..., call_timeout_s: _Optional[float] = ...) -> None: ...

class FieldMapping(_message.Message):
    __slots__ = ("ours", "theirs", "note")
    OURS_FIELD_NUMBER: _ClassVar[int]
    THEIRS_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    ours: str
    theirs: str
    note: str
    def __init__(self, ours: _Optional[str] = ..., theirs: _Optional[str] = ..., note: _Optional[str] = ...) -> None: ...

class OnboardRequest(_message.Message):
    __slots__ = ("target",)
    TARGET_FIELD_NUMBER: _ClassVar[int]
    target: Target
    def __init__(self, target: _Optional[_Union[Target, _Mapping]] = ...) -> None: ...

class Check(_message.Message):
    __slots__ = ("step", "ok", "detail", "remedy", "seconds")
    STEP_FIELD_NUMBER: _ClassVar[int]
    OK_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    REMEDY_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    step: str
    ok: bool
    detail: str
    remedy: str
    seconds: float
    def __init__(self, step: _Optional[str] = ..., ok: _Optional[bool] = ..., detail: _Optional[str] = ..., remedy: _Optional[str] = ..., seconds: _Optional[float] = ...) -> None: ...

class GetAccountRequest(_message.Message):
    __slots__ = ("target",)
    TARGET_FIELD_NUMBER: _ClassVar[int]
    target: Target
    def __init__(self, target: _Optional[_Union[Target, _Mapping]] = ...) -> None: ...

class Account(_message.Message):
    __slots__ = ("identity", "quotas")
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    QUOTAS_FIELD_NUMBER: _ClassVar[int]
    identity: str
    quotas: _containers.RepeatedCompositeFieldContainer[Quota]
    def __init__(self, identity: _Optional[str] = ..., quotas: _Optional[_Iterable[_Union[Quota, _Mapping]]] = ...) -> None: ...

class Quota(_message.Message):
    __slots__ = ("name", "limit", "used")
    NAME_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    USED_FIELD_NUMBER: _ClassVar[int]
    name: str
    limit: float
    used: float
    def __init__(self, name: _Optional[str] = ..., limit: _Optional[float] = ..., used: _Optional[float] = ...) -> None: ...

class DescribeEngineRequest(_message.Message):
    __slots__ = ("target",)
    TARGET_FIELD_NUMBER: _ClassVar[int]
    target: Target
    def __init__(self, target: _Optional[_Union[Target, _Mapping]] = ...) -> None: ...

class Description(_message.Message):
    __slots__ = ("engine", "version", "contract", "powers", "missing", "isolation", "limits", "network_metered", "guards", "permits")
    class MissingEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CONTRACT_FIELD_NUMBER: _ClassVar[int]
    POWERS_FIELD_NUMBER: _ClassVar[int]
    MISSING_FIELD_NUMBER: _ClassVar[int]
    ISOLATION_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    NETWORK_METERED_FIELD_NUMBER: _ClassVar[int]
    GUARDS_FIELD_NUMBER: _ClassVar[int]
    PERMITS_FIELD_NUMBER: _ClassVar[int]
    engine: str
    version: str
    contract: int
    powers: _containers.RepeatedScalarFieldContainer[str]
    missing: _containers.ScalarMap[str, str]
    isolation: Isolation
    limits: str
    network_metered: bool
    guards: _containers.RepeatedCompositeFieldContainer[GuardReport]
    permits: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, engine: _Optional[str] = ..., version: _Optional[str] = ..., contract: _Optional[int] = ..., powers: _Optional[_Iterable[str]] = ..., missing: _Optional[_Mapping[str, str]] = ..., isolation: _Optional[_Union[Isolation, str]] = ..., limits: _Optional[str] = ..., network_metered: _Optional[bool] = ..., guards: _Optional[_Iterable[_Union[GuardReport, _Mapping]]] = ..., permits: _Optional[_Iterable[str]] = ...) -> None: ...

class GuardReport(_message.Message):
    __slots__ = ("name", "kept", "reason")
    NAME_FIELD_NUMBER: _ClassVar[int]
    KEPT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    name: str
    kept: bool
    reason: str
    def __init__(self, name: _Optional[str] = ..., kept: _Optional[bool] = ..., reason: _Optional[str] = ...) -> None: ...

class Accelerators(_message.Message):
    __slots__ = ("kind", "milli", "memory_mib")
    KIND_FIELD_NUMBER: _ClassVar[int]
    MILLI_FIELD_NUMBER: _ClassVar[int]
    MEMORY_MIB_FIELD_NUMBER: _ClassVar[int]
    kind: str
    milli: int
    memory_mib: int
    def __init__(self, kind: _Optional[str] = ..., milli: _Optional[int] = ..., memory_mib: _Optional[int] = ...) -> None: ...

class ResourceVector(_message.Message):
    __slots__ = ("cpu_millis", "memory_mib", "disk_mib", "accelerators")
    CPU_MILLIS_FIELD_NUMBER: _ClassVar[int]
    MEMORY_MIB_FIELD_NUMBER: _ClassVar[int]
    DISK_MIB_FIELD_NUMBER: _ClassVar[int]
    ACCELERATORS_FIELD_NUMBER: _ClassVar[int]
    cpu_millis: int
    memory_mib: int
    disk_mib: int
    accelerators: _containers.RepeatedCompositeFieldContainer[Accelerators]
    def __init__(self, cpu_millis: _Optional[int] = ..., memory_mib: _Optional[int] = ..., disk_mib: _Optional[int] = ..., accelerators: _Optional[_Iterable[_Union[Accelerators, _Mapping]]] = ...) -> None: ...

class GetCatalogueRequest(_message.Message):
    __slots__ = ("target",)
    TARGET_FIELD_NUMBER: _ClassVar[int]
    target: Target
    def __init__(self, target: _Optional[_Union[Target, _Mapping]] = ...) -> None: ...

class Place(_message.Message):
    __slots__ = ("region", "latitude", "longitude", "level")
    REGION_FIELD_NUMBER: _ClassVar[int]
    LATITUDE_FIELD_NUMBER: _ClassVar[int]
    LONGITUDE_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    region: str
    latitude: float
    longitude: float
    level: Level
    def __init__(self, region: _Optional[str] = ..., latitude: _Optional[float] = ..., longitude: _Optional[float] = ..., level: _Optional[_Union[Level, str]] = ...) -> None: ...

class Region(_message.Message):
    __slots__ = ("name", "place")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PLACE_FIELD_NUMBER: _ClassVar[int]
    name: str
    place: Place
    def __init__(self, name: _Optional[str] = ..., place: _Optional[_Union[Place, _Mapping]] = ...) -> None: ...

class Spec(_message.Message):
    __slots__ = ("name", "region", "resources", "count", "price_micros_per_hour")
    NAME_FIELD_NUMBER: _ClassVar[int]
    REGION_FIELD_NUMBER: _ClassVar[int]
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    PRICE_MICROS_PER_HOUR_FIELD_NUMBER: _ClassVar[int]
    name: str
    region: str
    resources: ResourceVector
    count: int
    price_micros_per_hour: int
    def __init__(self, name: _Optional[str] = ..., region: _Optional[str] = ..., resources: _Optional[_Union[ResourceVector, _Mapping]] = ..., count: _Optional[int] = ..., price_micros_per_hour: _Optional[int] = ...) -> None: ...

class Catalogue(_message.Message):
    __slots__ = ("regions", "specs")
    REGIONS_FIELD_NUMBER: _ClassVar[int]
    SPECS_FIELD_NUMBER: _ClassVar[int]
    regions: _containers.RepeatedCompositeFieldContainer[Region]
    specs: _containers.RepeatedCompositeFieldContainer[Spec]
    def __init__(self, regions: _Optional[_Iterable[_Union[Region, _Mapping]]] = ..., specs: _Optional[_Iterable[_Union[Spec, _Mapping]]] = ...) -> None: ...

class GetInventoryRequest(_message.Message):
    __slots__ = ("target",)
    TARGET_FIELD_NUMBER: _ClassVar[int]
    target: Target
    def __init__(self, target: _Optional[_Union[Target, _Mapping]] = ...) -> None: ...

class Node(_message.Message):
    __slots__ = ("id", "total", "used", "ready", "reason", "isa", "labels", "taints", "system", "file_systems", "throughput")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ID_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    USED_FIELD_NUMBER: _ClassVar[int]
    READY_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    ISA_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    TAINTS_FIELD_NUMBER: _ClassVar[int]
    SYSTEM_FIELD_NUMBER: _ClassVar[int]
    FILE_SYSTEMS_FIELD_NUMBER: _ClassVar[int]
    THROUGHPUT_FIELD_NUMBER: _ClassVar[int]
    id: str
    total: ResourceVector
    used: ResourceVector
    ready: bool
    reason: str
    isa: str
    labels: _containers.ScalarMap[str, str]
    taints: _containers.RepeatedScalarFieldContainer[str]
    system: NodeSystem
    file_systems: _containers.RepeatedCompositeFieldContainer[FileSystem]
    throughput: Throughput
    def __init__(self, id: _Optional[str] = ..., total: _Optional[_Union[ResourceVector, _Mapping]] = ..., used: _Optional[_Union[ResourceVector, _Mapping]] = ..., ready: _Optional[bool] = ..., reason: _Optional[str] = ..., isa: _Optional[str] = ..., labels: _Optional[_Mapping[str, str]] = ..., taints: _Optional[_Iterable[str]] = ..., system: _Optional[_Union[NodeSystem, _Mapping]] = ..., file_systems: _Optional[_Iterable[_Union[FileSystem, _Mapping]]] = ..., throughput: _Optional[_Union[Throughput, _Mapping]] = ...) -> None: ...

class NodeSystem(_message.Message):
    __slots__ = ("os", "kernel", "cpu_model", "cpu_flags", "booted_at")
    OS_FIELD_NUMBER: _ClassVar[int]
    KERNEL_FIELD_NUMBER: _ClassVar[int]
    CPU_MODEL_FIELD_NUMBER: _ClassVar[int]
    CPU_FLAGS_FIELD_NUMBER: _ClassVar[int]
    BOOTED_AT_FIELD_NUMBER: _ClassVar[int]
    os: str
    kernel: str
    cpu_model: str
    cpu_flags: str
    booted_at: float
    def __init__(self, os: _Optional[str] = ..., kernel: _Optional[str] = ..., cpu_model: _Optional[str] = ..., cpu_flags: _Optional[str] = ..., booted_at: _Optional[float] = ...) -> None: ...

class FileSystem(_message.Message):
    __slots__ = ("path", "type", "total_mib", "free_mib")
    PATH_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    TOTAL_MIB_FIELD_NUMBER: _ClassVar[int]
    FREE_MIB_FIELD_NUMBER: _ClassVar[int]
    path: str
    type: str
    total_mib: int
    free_mib: int
    def __init__(self, path: _Optional[str] = ..., type: _Optional[str] = ..., total_mib: _Optional[int] = ..., free_mib: _Optional[int] = ...) -> None: ...

class Throughput(_message.Message):
    __slots__ = ("received_bytes_per_s", "sent_bytes_per_s", "read_bytes_per_s", "written_bytes_per_s")
    RECEIVED_BYTES_PER_S_FIELD_NUMBER: _ClassVar[int]
    SENT_BYTES_PER_S_FIELD_NUMBER: _ClassVar[int]
    READ_BYTES_PER_S_FIELD_NUMBER: _ClassVar[int]
    WRITTEN_BYTES_PER_S_FIELD_NUMBER: _ClassVar[int]
    received_bytes_per_s: float
    sent_bytes_per_s: float
    read_bytes_per_s: float
    written_bytes_per_s: float
    def __init__(self, received_bytes_per_s: _Optional[float] = ..., sent_bytes_per_s: _Optional[float] = ..., read_bytes_per_s: _Optional[float] = ..., written_bytes_per_s: _Optional[float] = ...) -> None: ...

class Inventory(_message.Message):
    __slots__ = ("taken_at", "nodes")
    TAKEN_AT_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    taken_at: float
    nodes: _containers.RepeatedCompositeFieldContainer[Node]
    def __init__(self, taken_at: _Optional[float] = ..., nodes: _Optional[_Iterable[_Union[Node, _Mapping]]] = ...) -> None: ...

class Step(_message.Message):
    __slots__ = ("name", "script")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SCRIPT_FIELD_NUMBER: _ClassVar[int]
    name: str
    script: str
    def __init__(self, name: _Optional[str] = ..., script: _Optional[str] = ...) -> None: ...

class LaunchOrder(_message.Message):
    __slots__ = ("allocation_id", "token", "project_id", "node_id", "resources", "steps", "image", "envs", "secrets", "timeout_s", "log_limit_bytes", "disk_limit_bytes", "outputs", "confinement", "grace_s", "separate_stderr", "python")
    class EnvsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class SecretsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ALLOCATION_ID_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    PROJECT_ID_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    IMAGE_FIELD_NUMBER: _ClassVar[int]
    ENVS_FIELD_NUMBER: _ClassVar[int]
    SECRETS_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_S_FIELD_NUMBER: _ClassVar[int]
    LOG_LIMIT_BYTES_FIELD_NUMBER: _ClassVar[int]
    DISK_LIMIT_BYTES_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    CONFINEMENT_FIELD_NUMBER: _ClassVar[int]
    GRACE_S_FIELD_NUMBER: _ClassVar[int]
    SEPARATE_STDERR_FIELD_NUMBER: _ClassVar[int]
    PYTHON_FIELD_NUMBER: _ClassVar[int]
    allocation_id: str
    token: int
    project_id: str
    node_id: str
    resources: ResourceVector
    steps: _containers.RepeatedCompositeFieldContainer[Step]
    image: str
    envs: _containers.ScalarMap[str, str]
    secrets: _containers.ScalarMap[str, str]
    timeout_s: float
    log_limit_bytes: int
    disk_limit_bytes: int
    outputs: _containers.RepeatedScalarFieldContainer[str]
    confinement: Confinement
    grace_s: float
    separate_stderr: bool
    python: PythonNeed
    def __init__(self, allocation_id: _Optional[str] = ..., token: _Optional[int] = ..., project_id: _Optional[str] = ..., node_id: _Optional[str] = ..., resources: _Optional[_Union[ResourceVector, _Mapping]] = ..., steps: _Optional[_Iterable[_Union[Step, _Mapping]]] = ..., image: _Optional[str] = ..., envs: _Optional[_Mapping[str, str]] = ..., secrets: _Optional[_Mapping[str, str]] = ..., timeout_s: _Optional[float] = ..., log_limit_bytes: _Optional[int] = ..., disk_limit_bytes: _Optional[int] = ..., outputs: _Optional[_Iterable[str]] = ..., confinement: _Optional[_Union[Confinement, _Mapping]] = ..., grace_s: _Optional[float] = ..., separate_stderr: _Optional[bool] = ..., python: _Optional[_Union[PythonNeed, _Mapping]] = ...) -> None: ...

class PythonNeed(_message.Message):
    __slots__ = ("version", "requirements", "file")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    REQUIREMENTS_FIELD_NUMBER: _ClassVar[int]
    FILE_FIELD_NUMBER: _ClassVar[int]
    version: str
    requirements: _containers.RepeatedScalarFieldContainer[str]
    file: str
    def __init__(self, version: _Optional[str] = ..., requirements: _Optional[_Iterable[str]] = ..., file: _Optional[str] = ...) -> None: ...

class Confinement(_message.Message):
    __slots__ = ("network", "egress", "privileged", "runtime")
    NETWORK_FIELD_NUMBER: _ClassVar[int]
    EGRESS_FIELD_NUMBER: _ClassVar[int]
    PRIVILEGED_FIELD_NUMBER: _ClassVar[int]
    RUNTIME_FIELD_NUMBER: _ClassVar[int]
    network: str
    egress: _containers.RepeatedScalarFieldContainer[str]
    privileged: bool
    runtime: str
    def __init__(self, network: _Optional[str] = ..., egress: _Optional[_Iterable[str]] = ..., privileged: _Optional[bool] = ..., runtime: _Optional[str] = ...) -> None: ...

class LaunchRequest(_message.Message):
    __slots__ = ("target", "order")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    ORDER_FIELD_NUMBER: _ClassVar[int]
    target: Target
    order: LaunchOrder
    def __init__(self, target: _Optional[_Union[Target, _Mapping]] = ..., order: _Optional[_Union[LaunchOrder, _Mapping]] = ...) -> None: ...

class StopRequest(_message.Message):
    __slots__ = ("target", "allocation_id", "token", "grace_s")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    ALLOCATION_ID_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    GRACE_S_FIELD_NUMBER: _ClassVar[int]
    target: Target
    allocation_id: str
    token: int
    grace_s: float
    def __init__(self, target: _Optional[_Union[Target, _Mapping]] = ..., allocation_id: _Optional[str] = ..., token: _Optional[int] = ..., grace_s: _Optional[float] = ...) -> None: ...

class ReleaseRequest(_message.Message):
    __slots__ = ("target", "allocation_id", "token")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    ALLOCATION_ID_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    target: Target
    allocation_id: str
    token: int
    def __init__(self, target: _Optional[_Union[Target, _Mapping]] = ..., allocation_id: _Optional[str] = ..., token: _Optional[int] = ...) -> None: ...

class ObserveRequest(_message.Message):
    __slots__ = ("target", "beyond", "wait_s", "changes")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    BEYOND_FIELD_NUMBER: _ClassVar[int]
    WAIT_S_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    target: Target
    beyond: int
    wait_s: float
    changes: bool
    def __init__(self, target: _Optional[_Union[Target, _Mapping]] = ..., beyond: _Optional[int] = ..., wait_s: _Optional[float] = ..., changes: _Optional[bool] = ...) -> None: ...

class Meters(_message.Message):
    __slots__ = ("wall_ms", "cpu_us", "memory_mib_ms", "memory_peak_mib", "read_bytes", "written_bytes", "received_bytes", "sent_bytes", "gap_ms")
    WALL_MS_FIELD_NUMBER: _ClassVar[int]
    CPU_US_FIELD_NUMBER: _ClassVar[int]
    MEMORY_MIB_MS_FIELD_NUMBER: _ClassVar[int]
    MEMORY_PEAK_MIB_FIELD_NUMBER: _ClassVar[int]
    READ_BYTES_FIELD_NUMBER: _ClassVar[int]
    WRITTEN_BYTES_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_BYTES_FIELD_NUMBER: _ClassVar[int]
    SENT_BYTES_FIELD_NUMBER: _ClassVar[int]
    GAP_MS_FIELD_NUMBER: _ClassVar[int]
    wall_ms: int
    cpu_us: int
    memory_mib_ms: int
    memory_peak_mib: int
    read_bytes: int
    written_bytes: int
    received_bytes: int
    sent_bytes: int
    gap_ms: int
    def __init__(self, wall_ms: _Optional[int] = ..., cpu_us: _Optional[int] = ..., memory_mib_ms: _Optional[int] = ..., memory_peak_mib: _Optional[int] = ..., read_bytes: _Optional[int] = ..., written_bytes: _Optional[int] = ..., received_bytes: _Optional[int] = ..., sent_bytes: _Optional[int] = ..., gap_ms: _Optional[int] = ...) -> None: ...

class Observed(_message.Message):
    __slots__ = ("allocation_id", "phase", "token", "node_id", "step", "exit_code", "ending", "started_at", "ended_at", "detail", "resources", "meters", "log_bytes")
    ALLOCATION_ID_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    EXIT_CODE_FIELD_NUMBER: _ClassVar[int]
    ENDING_FIELD_NUMBER: _ClassVar[int]
    STARTED_AT_FIELD_NUMBER: _ClassVar[int]
    ENDED_AT_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    METERS_FIELD_NUMBER: _ClassVar[int]
    LOG_BYTES_FIELD_NUMBER: _ClassVar[int]
    allocation_id: str
    phase: Phase
    token: int
    node_id: str
    step: str
    exit_code: int
    ending: Ending
    started_at: float
    ended_at: float
    detail: str
    resources: ResourceVector
    meters: Meters
    log_bytes: int
    def __init__(self, allocation_id: _Optional[str] = ..., phase: _Optional[_Union[Phase, str]] = ..., token: _Optional[int] = ..., node_id: _Optional[str] = ..., step: _Optional[str] = ..., exit_code: _Optional[int] = ..., ending: _Optional[_Union[Ending, str]] = ..., started_at: _Optional[float] = ..., ended_at: _Optional[float] = ..., detail: _Optional[str] = ..., resources: _Optional[_Union[ResourceVector, _Mapping]] = ..., meters: _Optional[_Union[Meters, _Mapping]] = ..., log_bytes: _Optional[int] = ...) -> None: ...

class Observation(_message.Message):
    __slots__ = ("version", "allocations", "notices", "since", "gone")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    ALLOCATIONS_FIELD_NUMBER: _ClassVar[int]
    NOTICES_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    GONE_FIELD_NUMBER: _ClassVar[int]
    version: int
    allocations: _containers.RepeatedCompositeFieldContainer[Observed]
    notices: _containers.RepeatedScalarFieldContainer[str]
    since: int
    gone: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, version: _Optional[int] = ..., allocations: _Optional[_Iterable[_Union[Observed, _Mapping]]] = ..., notices: _Optional[_Iterable[str]] = ..., since: _Optional[int] = ..., gone: _Optional[_Iterable[str]] = ...) -> None: ...

class ReadLogsRequest(_message.Message):
    __slots__ = ("target", "allocation_id", "offset", "follow")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    ALLOCATION_ID_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    FOLLOW_FIELD_NUMBER: _ClassVar[int]
    target: Target
    allocation_id: str
    offset: int
    follow: bool
    def __init__(self, target: _Optional[_Union[Target, _Mapping]] = ..., allocation_id: _Optional[str] = ..., offset: _Optional[int] = ..., follow: _Optional[bool] = ...) -> None: ...

class LogChunk(_message.Message):
    __slots__ = ("offset", "data", "marks")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    MARKS_FIELD_NUMBER: _ClassVar[int]
    offset: int
    data: bytes
    marks: _containers.RepeatedCompositeFieldContainer[LogMark]
    def __init__(self, offset: _Optional[int] = ..., data: _Optional[bytes] = ..., marks: _Optional[_Iterable[_Union[LogMark, _Mapping]]] = ...) -> None: ...

class LogMark(_message.Message):
    __slots__ = ("offset", "at_ms", "stream")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    offset: int
    at_ms: int
    stream: str
    def __init__(self, offset: _Optional[int] = ..., at_ms: _Optional[int] = ..., stream: _Optional[str] = ...) -> None: ...

class ReadUsageRequest(_message.Message):
    __slots__ = ("target", "beyond")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    BEYOND_FIELD_NUMBER: _ClassVar[int]
    target: Target
    beyond: int
    def __init__(self, target: _Optional[_Union[Target, _Mapping]] = ..., beyond: _Optional[int] = ...) -> None: ...

class UsageMinute(_message.Message):
    __slots__ = ("seq", "allocation_id", "minute", "samples", "cpu_mean_millis", "cpu_max_millis", "cpu_sketch", "memory_mean_mib", "memory_max_mib", "read_bytes", "written_bytes", "received_bytes", "sent_bytes")
    SEQ_FIELD_NUMBER: _ClassVar[int]
    ALLOCATION_ID_FIELD_NUMBER: _ClassVar[int]
    MINUTE_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    CPU_MEAN_MILLIS_FIELD_NUMBER: _ClassVar[int]
    CPU_MAX_MILLIS_FIELD_NUMBER: _ClassVar[int]
    CPU_SKETCH_FIELD_NUMBER: _ClassVar[int]
    MEMORY_MEAN_MIB_FIELD_NUMBER: _ClassVar[int]
    MEMORY_MAX_MIB_FIELD_NUMBER: _ClassVar[int]
    READ_BYTES_FIELD_NUMBER: _ClassVar[int]
    WRITTEN_BYTES_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_BYTES_FIELD_NUMBER: _ClassVar[int]
    SENT_BYTES_FIELD_NUMBER: _ClassVar[int]
    seq: int
    allocation_id: str
    minute: int
    samples: int
    cpu_mean_millis: float
    cpu_max_millis: float
    cpu_sketch: _containers.RepeatedScalarFieldContainer[int]
    memory_mean_mib: float
    memory_max_mib: float
    read_bytes: int
    written_bytes: int
    received_bytes: int
    sent_bytes: int
    def __init__(self, seq: _Optional[int] = ..., allocation_id: _Optional[str] = ..., minute: _Optional[int] = ..., samples: _Optional[int] = ..., cpu_mean_millis: _Optional[float] = ..., cpu_max_millis: _Optional[float] = ..., cpu_sketch: _Optional[_Iterable[int]] = ..., memory_mean_mib: _Optional[float] = ..., memory_max_mib: _Optional[float] = ..., read_bytes: _Optional[int] = ..., written_bytes: _Optional[int] = ..., received_bytes: _Optional[int] = ..., sent_bytes: _Optional[int] = ...) -> None: ...

class ResizeRequest(_message.Message):
    __slots__ = ("target", "allocation_id", "token", "resources")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    ALLOCATION_ID_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    target: Target
    allocation_id: str
    token: int
    resources: ResourceVector
    def __init__(self, target: _Optional[_Union[Target, _Mapping]] = ..., allocation_id: _Optional[str] = ..., token: _Optional[int] = ..., resources: _Optional[_Union[ResourceVector, _Mapping]] = ...) -> None: ...

class PinRequest(_message.Message):
    __slots__ = ("target", "allocation_id", "token", "cores")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    ALLOCATION_ID_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    CORES_FIELD_NUMBER: _ClassVar[int]
    target: Target
    allocation_id: str
    token: int
    cores: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, target: _Optional[_Union[Target, _Mapping]] = ..., allocation_id: _Optional[str] = ..., token: _Optional[int] = ..., cores: _Optional[_Iterable[int]] = ...) -> None: ...

class PauseRequest(_message.Message):
    __slots__ = ("target", "allocation_id", "token")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    ALLOCATION_ID_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    target: Target
    allocation_id: str
    token: int
    def __init__(self, target: _Optional[_Union[Target, _Mapping]] = ..., allocation_id: _Optional[str] = ..., token: _Optional[int] = ...) -> None: ...

class ResumeRequest(_message.Message):
    __slots__ = ("target", "allocation_id", "token")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    ALLOCATION_ID_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    target: Target
    allocation_id: str
    token: int
    def __init__(self, target: _Optional[_Union[Target, _Mapping]] = ..., allocation_id: _Optional[str] = ..., token: _Optional[int] = ...) -> None: ...

class Upload(_message.Message):
    __slots__ = ("allocation_id", "token", "project_id", "path", "digest", "size_bytes", "resources")
    ALLOCATION_ID_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    PROJECT_ID_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    allocation_id: str
    token: int
    project_id: str
    path: str
    digest: str
    size_bytes: int
    resources: ResourceVector
    def __init__(self, allocation_id: _Optional[str] = ..., token: _Optional[int] = ..., project_id: _Optional[str] = ..., path: _Optional[str] = ..., digest: _Optional[str] = ..., size_bytes: _Optional[int] = ..., resources: _Optional[_Union[ResourceVector, _Mapping]] = ...) -> None: ...

class Announcement(_message.Message):
    __slots__ = ("target", "upload")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    UPLOAD_FIELD_NUMBER: _ClassVar[int]
    target: Target
    upload: Upload
    def __init__(self, target: _Optional[_Union[Target, _Mapping]] = ..., upload: _Optional[_Union[Upload, _Mapping]] = ...) -> None: ...

class PutArchiveRequest(_message.Message):
    __slots__ = ("announcement", "piece")
    ANNOUNCEMENT_FIELD_NUMBER: _ClassVar[int]
    PIECE_FIELD_NUMBER: _ClassVar[int]
    announcement: Announcement
    piece: bytes
    def __init__(self, announcement: _Optional[_Union[Announcement, _Mapping]] = ..., piece: _Optional[bytes] = ...) -> None: ...

class PutArchiveResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetArchiveRequest(_message.Message):
    __slots__ = ("target", "allocation_id", "paths")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    ALLOCATION_ID_FIELD_NUMBER: _ClassVar[int]
    PATHS_FIELD_NUMBER: _ClassVar[int]
    target: Target
    allocation_id: str
    paths: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, target: _Optional[_Union[Target, _Mapping]] = ..., allocation_id: _Optional[str] = ..., paths: _Optional[_Iterable[str]] = ...) -> None: ...

class ArchivePiece(_message.Message):
    __slots__ = ("data",)
    DATA_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    def __init__(self, data: _Optional[bytes] = ...) -> None: ...

class ExecRequest(_message.Message):
    __slots__ = ("argv", "tty", "rows", "columns")
    ARGV_FIELD_NUMBER: _ClassVar[int]
    TTY_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    argv: _containers.RepeatedScalarFieldContainer[str]
    tty: bool
    rows: int
    columns: int
    def __init__(self, argv: _Optional[_Iterable[str]] = ..., tty: _Optional[bool] = ..., rows: _Optional[int] = ..., columns: _Optional[int] = ...) -> None: ...

class ExecStart(_message.Message):
    __slots__ = ("target", "allocation_id", "request")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    ALLOCATION_ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    target: Target
    allocation_id: str
    request: ExecRequest
    def __init__(self, target: _Optional[_Union[Target, _Mapping]] = ..., allocation_id: _Optional[str] = ..., request: _Optional[_Union[ExecRequest, _Mapping]] = ...) -> None: ...

class Window(_message.Message):
    __slots__ = ("rows", "columns")
    ROWS_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    rows: int
    columns: int
    def __init__(self, rows: _Optional[int] = ..., columns: _Optional[int] = ...) -> None: ...

class ExecMessage(_message.Message):
    __slots__ = ("start", "input", "window")
    START_FIELD_NUMBER: _ClassVar[int]
    INPUT_FIELD_NUMBER: _ClassVar[int]
    WINDOW_FIELD_NUMBER: _ClassVar[int]
    start: ExecStart
    input: bytes
    window: Window
    def __init__(self, start: _Optional[_Union[ExecStart, _Mapping]] = ..., input: _Optional[bytes] = ..., window: _Optional[_Union[Window, _Mapping]] = ...) -> None: ...

class ExecStarted(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ExecEvent(_message.Message):
    __slots__ = ("started", "output", "exit_code")
    STARTED_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    EXIT_CODE_FIELD_NUMBER: _ClassVar[int]
    started: ExecStarted
    output: bytes
    exit_code: int
    def __init__(self, started: _Optional[_Union[ExecStarted, _Mapping]] = ..., output: _Optional[bytes] = ..., exit_code: _Optional[int] = ...) -> None: ...

class ForwardStart(_message.Message):
    __slots__ = ("target", "allocation_id", "port")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    ALLOCATION_ID_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    target: Target
    allocation_id: str
    port: int
    def __init__(self, target: _Optional[_Union[Target, _Mapping]] = ..., allocation_id: _Optional[str] = ..., port: _Optional[int] = ...) -> None: ...

class ForwardMessage(_message.Message):
    __slots__ = ("start", "data")
    START_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    start: ForwardStart
    data: bytes
    def __init__(self, start: _Optional[_Union[ForwardStart, _Mapping]] = ..., data: _Optional[bytes] = ...) -> None: ...

class ForwardConnected(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ForwardEvent(_message.Message):
    __slots__ = ("connected", "data")
    CONNECTED_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    connected: ForwardConnected
    data: bytes
    def __init__(self, connected: _Optional[_Union[ForwardConnected, _Mapping]] = ..., data: _Optional[bytes] = ...) -> None: ...
