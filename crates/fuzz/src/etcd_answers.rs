//! Any bytes as an answer of etcd: not read, or read as it would be written.

use prost::Message;
use store::etcd::messages::{LeaseGrantResponse, LeaseKeepAliveResponse, RangeResponse, TxnResponse, WatchResponse};

pub fn check_bytes(bytes: &[u8]) {
    let &[which, ref rest @ ..] = bytes else { return };
    match which % 5 {
        0 => again::<RangeResponse>(rest),
        1 => again::<LeaseGrantResponse>(rest),
        2 => again::<LeaseKeepAliveResponse>(rest),
        3 => again::<WatchResponse>(rest),
        _ => {
            again::<TxnResponse>(rest);
            if let Ok(answer) = TxnResponse::decode(rest) {
                for index in 0..4 {
                    let _ = answer.found(index);
                }
            }
        }
    }
}

fn again<M: Message + Default + PartialEq + std::fmt::Debug>(bytes: &[u8]) {
    if let Ok(message) = M::decode(bytes) {
        assert_eq!(M::decode(message.encode_to_vec().as_slice()), Ok(message), "what is written is read again");
    }
}
