//! The few messages of the GCS that the relay sends and reads, with only the fields it needs.
//!
//! Numbers from the protocol buffers of Ray (`src/ray/protobuf/gcs.proto`, `gcs_service.proto`, `common.proto`),
//! checked against the descriptors inside Ray 2.9.3, 2.38.0, 2.52.1 and 2.60.0. Unknown fields are skipped.

use prost::Message;

/// `GcsStatus`: the outcome of a request.
#[derive(Clone, PartialEq, Message)]
pub(in crate::ray::registry) struct Status {
    /// 0 is good; 17 is "not found".
    #[prost(int32, tag = "1")]
    pub(in crate::ray::registry) code: i32,
    #[prost(string, tag = "2")]
    pub(in crate::ray::registry) message: String,
}

/// `InternalKVKeysRequest`: requests the keys with a prefix.
#[derive(Clone, PartialEq, Message)]
pub(in crate::ray::registry) struct KeysRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(in crate::ray::registry) prefix: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(in crate::ray::registry) namespace: Vec<u8>,
}

/// `InternalKVKeysReply`: the found keys.
#[derive(Clone, PartialEq, Message)]
pub(in crate::ray::registry) struct KeysReply {
    #[prost(message, optional, tag = "1")]
    pub(in crate::ray::registry) status: Option<Status>,
    #[prost(bytes = "vec", repeated, tag = "2")]
    pub(in crate::ray::registry) keys: Vec<Vec<u8>>,
}

/// `InternalKVMultiGetRequest`: requests the values of several keys.
#[derive(Clone, PartialEq, Message)]
pub(in crate::ray::registry) struct MultiGetRequest {
    #[prost(bytes = "vec", repeated, tag = "1")]
    pub(in crate::ray::registry) keys: Vec<Vec<u8>>,
    #[prost(bytes = "vec", tag = "2")]
    pub(in crate::ray::registry) namespace: Vec<u8>,
}

/// `InternalKVMultiGetReply`: the found keys, with their values.
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn field_numbers_match_rays_protocol_buffers() {
        // Encoded by grpcio from Ray 2.60's descriptors: InternalKVKeysRequest(b"RAY_PDB_", b"ray_pdb").
        let keys = KeysRequest {
            prefix: b"RAY_PDB_".to_vec(),
            namespace: b"ray_pdb".to_vec(),
        };
        assert_eq!(keys.encode_to_vec(), b"\x0a\x08RAY_PDB_\x12\x07ray_pdb");
    }
}
