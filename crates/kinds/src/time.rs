//! Times as objects carry them.

use jiff::Timestamp;

/// RFC 3339 with whole seconds, as all of Kubernetes' times are. A moment no calendar reaches is its first or last one.
pub fn text(ms: i64) -> String {
    let seconds = ms.div_euclid(1000).clamp(Timestamp::MIN.as_second(), Timestamp::MAX.as_second());
    Timestamp::from_second(seconds).unwrap_or_default().to_string()
}

/// The moment a text says, in milliseconds since 1970; none if it says none.
pub fn read_ms(text: &str) -> Option<i64> {
    text.parse::<Timestamp>().ok().map(|at| at.as_millisecond())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_whole_seconds() {
        assert_eq!(text(1_763_195_260_999), "2025-11-15T08:27:40Z");
        assert_eq!(text(-1), "1969-12-31T23:59:59Z");
        assert_eq!(read_ms("2025-11-15T08:27:40Z"), Some(1_763_195_260_000));
        assert_eq!(read_ms("soon"), None);
    }

    #[test]
    fn what_no_calendar_reaches_is_its_end() {
        assert_eq!(text(i64::MAX), "9999-12-30T22:00:00Z");
        assert_eq!(read_ms(&text(i64::MIN)), Some(Timestamp::MIN.as_second() * 1000));
    }
}
