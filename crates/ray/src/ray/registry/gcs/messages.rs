//! The few messages of the GCS that the relay sends and reads, with only the fields it needs.
//!
//! Numbers from the protocol buffers of Ray (`src/ray/protobuf/gcs.proto`, `gcs_service.proto`, `common.proto`),
//! checked against the descriptors inside Ray 2.9.3, 2.38.0, 2.52.1 and 2.60.0. Unknown fields are skipped.

use prost::Message;

/// `GcsStatus`: how a request ended.
#[derive(Clone, PartialEq, Message)]
pub(in crate::ray::registry) struct Status {
    /// 0 is good; 17 is "not found".
    #[prost(int32, tag = "1")]
    pub(in crate::ray::registry) code: i32,
    #[prost(string, tag = "2")]
    pub(in crate::ray::registry) message: String,
}

/// `InternalKVKeysRequest`: asks for the keys with a prefix.
#[derive(Clone, PartialEq, Message)]
pub(in crate::ray::registry) struct KeysRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(in crate::ray::registry) prefix: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(in crate::ray::registry) namespace: Vec<u8>,
}

/// `InternalKVKeysReply`: the keys that were found.
#[derive(Clone, PartialEq, Message)]
pub(in crate::ray::registry) struct KeysReply {
    #[prost(message, optional, tag = "1")]
    pub(in crate::ray::registry) status: Option<Status>,
    #[prost(bytes = "vec", repeated, tag = "2")]
    pub(in crate::ray::registry) keys: Vec<Vec<u8>>,
}

/// `InternalKVMultiGetRequest`: asks for the values of several keys.
#[derive(Clone, PartialEq, Message)]
pub(in crate::ray::registry) struct MultiGetRequest {
    #[prost(bytes = "vec", repeated, tag = "1")]
    pub(in crate::ray::registry) keys: Vec<Vec<u8>>,
    #[prost(bytes = "vec", tag = "2")]
    pub(in crate::ray::registry) namespace: Vec<u8>,
}

/// `InternalKVMultiGetReply`: the keys that were found, with their values.
#[derive(Clone, PartialEq, Message)]
pub(in crate::ray::registry) struct MultiGetReply {
    #[prost(message, optional, tag = "1")]
    pub(in crate::ray::registry) status: Option<Status>,
    #[prost(message, repeated, tag = "2")]
    pub(in crate::ray::registry) found: Vec<KeyValue>,
}

/// `MapFieldEntry`: one key with its value.
#[derive(Clone, PartialEq, Message)]
pub(in crate::ray::registry) struct KeyValue {
    #[prost(bytes = "vec", tag = "1")]
    pub(in crate::ray::registry) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(in crate::ray::registry) value: Vec<u8>,
}

/// `GetAllWorkerInfoRequest`; filters from Ray 2.38 on, ignored before.
#[derive(Clone, PartialEq, Message)]
pub(in crate::ray::registry) struct WorkersRequest {
    #[prost(int64, optional, tag = "1")]
    pub(in crate::ray::registry) limit: Option<i64>,
    #[prost(message, optional, tag = "2")]
    pub(in crate::ray::registry) filters: Option<WorkerFilters>,
}

/// `GetAllWorkerInfoRequest.Filters`: which workers are wanted.
#[derive(Clone, PartialEq, Message)]
pub(in crate::ray::registry) struct WorkerFilters {
    #[prost(bool, optional, tag = "1")]
    pub(in crate::ray::registry) exist_paused_threads: Option<bool>,
    #[prost(bool, optional, tag = "2")]
    pub(in crate::ray::registry) is_alive: Option<bool>,
}

/// `GetAllWorkerInfoReply`: the rows of workers.
#[derive(Clone, PartialEq, Message)]
pub(in crate::ray::registry) struct WorkersReply {
    #[prost(message, optional, tag = "1")]
    pub(in crate::ray::registry) status: Option<Status>,
    #[prost(message, repeated, tag = "2")]
    pub(in crate::ray::registry) workers: Vec<Worker>,
    #[prost(int64, tag = "3")]
    pub(in crate::ray::registry) total: i64,
}

/// `WorkerTableData`: one worker.
#[derive(Clone, PartialEq, Message)]
pub(in crate::ray::registry) struct Worker {
    #[prost(bool, tag = "1")]
    pub(in crate::ray::registry) is_alive: bool,
    #[prost(message, optional, tag = "2")]
    pub(in crate::ray::registry) address: Option<Address>,
    /// 1 is a driver.
    #[prost(int32, tag = "5")]
    pub(in crate::ray::registry) worker_type: i32,
    #[prost(uint32, tag = "21")]
    pub(in crate::ray::registry) pid: u32,
    #[prost(uint32, optional, tag = "27")]
    pub(in crate::ray::registry) debugger_port: Option<u32>,
    #[prost(uint32, optional, tag = "28")]
    pub(in crate::ray::registry) num_paused_threads: Option<u32>,
}

/// `Address`: where a worker runs.
#[derive(Clone, PartialEq, Message)]
pub(in crate::ray::registry) struct Address {
    #[prost(bytes = "vec", tag = "1")]
    pub(in crate::ray::registry) node_id: Vec<u8>,
    #[prost(string, tag = "2")]
    pub(in crate::ray::registry) ip: String,
    #[prost(bytes = "vec", tag = "4")]
    pub(in crate::ray::registry) worker_id: Vec<u8>,
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_rays_own_protocol_buffers() {
        // Encoded by grpcio from Ray 2.60's descriptors: InternalKVKeysRequest(b"RAY_PDB_", b"ray_pdb").
        let keys = KeysRequest {
            prefix: b"RAY_PDB_".to_vec(),
            namespace: b"ray_pdb".to_vec(),
        };
        assert_eq!(keys.encode_to_vec(), b"\x0a\x08RAY_PDB_\x12\x07ray_pdb");
        let workers = WorkersRequest {
            limit: Some(5),
            filters: Some(WorkerFilters {
                exist_paused_threads: Some(true),
                is_alive: Some(true),
            }),
        };
        assert_eq!(workers.encode_to_vec(), b"\x08\x05\x12\x04\x08\x01\x10\x01");
        // WorkerTableData with fields that are not read (6: a map, 19: exit type) among those that are.
        let row = b"\x08\x01\x12\x0c\x0a\x02\xab\xcd\x12\x03::1\x22\x01\xef\x28\x01\x32\x00\x98\x01\x02\xa8\x01\x07\xd8\x01\xb8\x17\xe0\x01\x01";
        let row = Worker::decode(&row[..]).unwrap();
        assert!(row.is_alive && row.worker_type == 1);
        assert_eq!(
            (row.pid, row.debugger_port, row.num_paused_threads),
            (7, Some(3000), Some(1))
        );
        let address = row.address.unwrap();
        assert_eq!((&*address.ip, &*address.worker_id), ("::1", &[0xef][..]));
    }
}
