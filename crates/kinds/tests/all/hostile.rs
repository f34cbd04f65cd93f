//! Bodies that were good once: real encodings of every kind with bytes changed, cut and repeated. The fuzz target runs the
//! same harness without end.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kinds::decode::Format;

use crate::decode_harness::{check_body, check_bytes};
use crate::roundtrip::encodings;

/// Mutations of each encoding. Three a kind and format come to some thousand bodies, about a second.
const MUTATIONS: usize = 3;

#[test]
fn damaged_bodies_are_refused_or_read_but_never_worse() {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for (index, encoding) in encodings(7, 1).iter().enumerate() {
        let wire = STANDARD.decode(&encoding.wire).expect("base64");
        let json = encoding.json.as_bytes();
        for (format, bytes) in [(Format::Json, json), (Format::Yaml, json), (Format::Protobuf, &wire[..])] {
            for _ in 0..MUTATIONS {
                check_body(format, encoding.kind_index, &random.damaged(bytes));
            }
        }
        check_body(Format::Protobuf, index, &wire);
    }
}

#[test]
fn short_texts_of_the_grammars_own_characters_do_no_harm() {
    let mut random = Random(1);
    let alphabet = b"{}[]\",:-+.eE0123456789truefalsn \n\\u&*!|>#%@`'ab\xc3\xa9";
    for _ in 0..20_000 {
        let length = random.below(24);
        let mut bytes =
            vec![u8::try_from(random.below(2)).expect("small"), u8::try_from(random.below(200)).expect("small")];
        bytes.extend((0..length).map(|_| alphabet[random.below(alphabet.len())]));
        check_bytes(&bytes);
    }
}

/// A small generator of our own, so that a failure is found again by running the test again.
pub struct Random(pub u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(end.max(1)).expect("a length")).expect("below a length")
    }

    pub fn damaged(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut bytes = bytes.to_vec();
        for _ in 0..=self.below(3) {
            let at = self.below(bytes.len());
            match self.below(4) {
                0 => bytes.truncate(at),
                1 => bytes[at..]
                    .iter_mut()
                    .take(1)
                    .for_each(|byte| *byte = u8::try_from(self.below(256)).expect("a byte")),
                2 => {
                    let end = (at + self.below(20)).min(bytes.len());
                    bytes.drain(at..end);
                }
                _ => {
                    let end = (at + self.below(20)).min(bytes.len());
                    let piece = bytes[at..end].to_vec();
                    bytes.splice(at..at, piece);
                }
            }
        }
        bytes
    }
}
