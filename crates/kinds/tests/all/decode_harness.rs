//! What must hold for any bytes that arrive as a body. The fuzz target and the bounded tests both call this.

use kinds::decode::{DecodeError, Format, body, fit, json};
use kinds::facts;
use serde_json::Value;

/// The first byte says which format, the second which kind, the rest is the body.
pub fn check_bytes(bytes: &[u8]) {
    let &[format, kind, ref rest @ ..] = bytes else { return };
    let format = match format % 3 {
        0 => Format::Json,
        1 => Format::Yaml,
        _ => Format::Protobuf,
    };
    check_body(format, usize::from(kind), rest);
}

pub fn check_body(format: Format, kind: usize, bytes: &[u8]) {
    let kinds = facts().kinds();
    let ty = kinds[kind % kinds.len()].ty;
    let catalogue = &facts().catalogue;
    if format == Format::Json {
        check_json(bytes);
    }
    // Whatever the bytes are: an answer, and no panic on the way to it.
    let Ok(read) = body(format, bytes, catalogue, ty) else { return };

    // What fits its kind fits it as it is. A body can name another type by its envelope, but not another kind.
    let again = fit(catalogue, ty, read.value.clone()).expect("what fits, fits again");
    assert_eq!(again.value, read.value, "fitting twice");
    assert!(again.unknown.is_empty(), "{:?}", again.unknown);

    // And it is read the same from its own text.
    let text = read.value.to_string();
    let reread = body(Format::Json, text.as_bytes(), catalogue, ty).expect("its own text");
    assert_eq!(reread.value, read.value, "reading again");
    assert!(reread.problems.is_empty(), "{:?}", reread.problems);
}

/// Our reader and serde_json take the same texts for JSON, save where ours says why not.
fn check_json(bytes: &[u8]) {
    match (json(bytes, None), serde_json::from_slice::<Value>(bytes)) {
        (Ok(ours), Ok(theirs)) => assert!(alike(&ours.value, &theirs), "{} and {theirs}", ours.value),
        (Err(DecodeError::Syntax(words)), Ok(theirs)) => panic!("{theirs} was refused: {words}"),
        (Ok(ours), Err(error)) => {
            // Half a surrogate pair is a mistake to serde_json and a replacement character to Go.
            let text = std::str::from_utf8(bytes).expect("both read text");
            let pardoned = text.contains("\\u") || error.to_string().contains("recursion limit");
            assert!(pardoned, "{} was read, and serde_json says {error}", ours.value);
        }
        (Err(_), _) => {}
    }
}

/// Equal but for the last bit of floats, which the two readers round differently.
fn alike(ours: &Value, theirs: &Value) -> bool {
    match (ours, theirs) {
        (Value::Number(a), Value::Number(b)) => a == b || a.is_f64() || b.is_f64(),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| alike(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|((k, a), (l, b))| k == l && alike(a, b))
        }
        _ => ours == theirs,
    }
}
