//! RFC 3339 times as Kubernetes reads and writes them: any offset in, UTC out, whole seconds for `Time` and six digits of
//! a second for `MicroTime`. The zero time of Go (year 1) stands for "not set".

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::Offset;

/// Which of the two time types a field has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precision {
    Seconds,
    Micros,
}

impl Precision {
    /// The layout by which Go's error messages name the format.
    fn layout(self) -> &'static str {
        match self {
            Precision::Seconds => "2006-01-02T15:04:05Z07:00",
            Precision::Micros => "2006-01-02T15:04:05.000000Z07:00",
        }
    }
}

/// Brings a time into its stored form; `None` is the zero time.
pub fn normal(text: &str, precision: Precision) -> Result<Option<String>, String> {
    let fault = |rest: &str, element: &str| {
        let (text, rest) = (crate::field_error::quote(text), crate::field_error::quote(rest));
        format!("parsing time {text} as \"{}\": cannot parse {rest} as \"{element}\"", precision.layout())
    };
    let mut numbers = [0i16; 6];
    let mut rest = text;
    for (at, element) in ["2006", "-", "01", "-", "02", "T", "15", ":", "04", ":", "05"].iter().enumerate() {
        if at % 2 == 1 {
            rest = rest.strip_prefix(element).ok_or_else(|| fault(rest, element))?;
            continue;
        }
        let digits = rest.get(..element.len()).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()));
        numbers[at / 2] = digits.and_then(|digits| digits.parse().ok()).ok_or_else(|| fault(rest, element))?;
        rest = &rest[element.len()..];
    }
    let (nanos, after) = fraction(rest, precision).ok_or_else(|| fault(rest, ".000000"))?;
    let offset = offset(after).ok_or_else(|| fault(after, "Z07:00"))?;
    let [year, month, day, hour, minute, second] = numbers;
    let out_of_range = |what: &str| format!("parsing time {}: {what} out of range", crate::field_error::quote(text));
    for (value, range, what) in [
        (month, 1..=12, "month"),
        (day, 1..=31, "day"),
        (hour, 0..=23, "hour"),
        (minute, 0..=59, "minute"),
        (second, 0..=59, "second"),
    ] {
        if !range.contains(&value) {
            return Err(out_of_range(what));
        }
    }
    // All are at most two digits, so the narrowing cannot fail.
    let [month, day, hour, minute, second] =
        [month, day, hour, minute, second].map(|number| i8::try_from(number).unwrap_or(i8::MAX));
    let local = DateTime::new(year, month, day, hour, minute, second, nanos).map_err(|_| out_of_range("day"))?;
    let moment = offset.to_timestamp(local).map_err(|_| out_of_range("year"))?;
    Ok(print(moment, precision))
}

/// A time from the wire. The error is for a moment outside of years 1 to 9999.
pub fn from_parts(seconds: i64, nanos: i32, precision: Precision) -> Result<Option<String>, ()> {
    let moment = Timestamp::new(seconds, nanos).map_err(|_| ())?;
    if moment.strftime("%Y").to_string().starts_with('-') {
        return Err(());
    }
    Ok(print(moment, precision))
}

fn print(moment: Timestamp, precision: Precision) -> Option<String> {
    // Through the civil time, whose fraction counts forward also before 1970.
    let civil = Offset::UTC.to_datetime(moment);
    let text = match precision {
        Precision::Seconds => civil.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        Precision::Micros => {
            format!("{}.{:06}Z", civil.strftime("%Y-%m-%dT%H:%M:%S"), civil.subsec_nanosecond() / 1_000)
        }
    };
    (!text.starts_with("0001-01-01T00:00:00")).then_some(text)
}

/// Whether a `Time` is as it is stored. Nearly every time that arrives is in its stored form already. Days past the 28th take the longer way.
pub fn is_normal(text: &[u8]) -> bool {
    let two = |at: usize| (text[at] - b'0') * 10 + (text[at + 1] - b'0');
    text.len() == 20
        && text.iter().zip(b"0000-00-00T00:00:00Z").all(|(byte, pattern)| match pattern {
            b'0' => byte.is_ascii_digit(),
            _ => byte == pattern,
        })
        && (1..=12).contains(&two(5))
        && (1..=28).contains(&two(8))
        && two(11) < 24
        && two(14) < 60
        && two(17) < 60
        && &text[..4] > b"0001".as_slice()
}

/// Go takes a fraction of a second of any length where the layout has none, and exactly the digits it names otherwise.
fn fraction(rest: &str, precision: Precision) -> Option<(i32, &str)> {
    let Some(digits) = rest.strip_prefix(['.', ',']) else {
        return (precision == Precision::Seconds).then_some((0, rest));
    };
    let length = digits.bytes().take_while(u8::is_ascii_digit).count();
    if length == 0 || precision == Precision::Micros && length != 6 {
        return None;
    }
    let nanos = digits[..length].bytes().chain(std::iter::repeat(b'0')).take(9);
    let nanos = nanos.fold(0, |nanos: i32, digit| nanos * 10 + i32::from(digit - b'0'));
    Some((nanos, &digits[length..]))
}

fn offset(text: &str) -> Option<Offset> {
    if text == "Z" {
        return Some(Offset::UTC);
    }
    let bytes = text.as_bytes();
    let sign = match bytes.first()? {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let shape = bytes.len() == 6 && bytes[3] == b':' && [1, 2, 4, 5].into_iter().all(|at| bytes[at].is_ascii_digit());
    if !shape {
        return None;
    }
    let (hours, minutes): (i32, i32) = (text[1..3].parse().ok()?, text[4..6].parse().ok()?);
    if hours > 24 || minutes >= 60 {
        return None;
    }
    Offset::from_seconds(sign * (hours * 3600 + minutes * 60)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_become_utc_with_whole_seconds() {
        for (text, expected) in [
            ("2026-11-15T08:00:00Z", Some("2026-11-15T08:00:00Z")),
            ("2026-11-15T08:00:00+02:00", Some("2026-11-15T06:00:00Z")),
            ("2026-03-01T00:30:00.999999999+01:00", Some("2026-02-28T23:30:00Z")),
            ("2024-02-29T00:00:00Z", Some("2024-02-29T00:00:00Z")),
            ("0001-01-01T00:00:00Z", None),
        ] {
            assert_eq!(normal(text, Precision::Seconds).unwrap().as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn micro_times_have_six_digits() {
        let text = "2026-11-15T08:00:00.000123+00:00";
        assert_eq!(normal(text, Precision::Micros).unwrap().as_deref(), Some("2026-11-15T08:00:00.000123Z"));
        let text = "1965-07-27T11:30:28.820972Z";
        assert_eq!(normal(text, Precision::Micros).unwrap().as_deref(), Some(text));
        assert!(normal("2026-11-15T08:00:00Z", Precision::Micros).is_err());
        assert!(normal("2026-11-15T08:00:00.123Z", Precision::Micros).is_err());
    }

    #[test]
    fn what_is_no_time_is_refused_in_gos_words() {
        let layout = r#"as "2006-01-02T15:04:05Z07:00""#;
        for (text, words) in [
            ("", format!(r#"parsing time "" {layout}: cannot parse "" as "2006""#)),
            ("yesterday", format!(r#"parsing time "yesterday" {layout}: cannot parse "yesterday" as "2006""#)),
            ("2026-11-15", format!(r#"parsing time "2026-11-15" {layout}: cannot parse "" as "T""#)),
            (
                "2026-11-15 08:00:00Z",
                format!(r#"parsing time "2026-11-15 08:00:00Z" {layout}: cannot parse " 08:00:00Z" as "T""#),
            ),
            ("2026-13-15T08:00:00Z", r#"parsing time "2026-13-15T08:00:00Z": month out of range"#.into()),
            ("2026-02-30T08:00:00Z", r#"parsing time "2026-02-30T08:00:00Z": day out of range"#.into()),
            (
                "2026-11-15T08:00:00",
                format!(r#"parsing time "2026-11-15T08:00:00" {layout}: cannot parse "" as "Z07:00""#),
            ),
        ] {
            assert_eq!(normal(text, Precision::Seconds), Err(words), "{text}");
        }
        assert!(normal("2026-11-15T08:00:00日Z", Precision::Seconds).is_err());
        assert!(normal("日本日本", Precision::Seconds).is_err());
    }
}
