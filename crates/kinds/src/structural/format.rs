//! The string formats custom resources may name. An unknown format is not checked, as in Kubernetes.

use std::net::{Ipv4Addr, Ipv6Addr};

use base64::Engine as _;

/// Whether a text has a format. None for formats we do not check.
pub(super) fn has_format(text: &str, format: &str) -> Option<bool> {
    Some(match format {
        "date-time" | "datetime" => text.parse::<jiff::Timestamp>().is_ok(),
        "date" => text.len() == 10 && text.parse::<jiff::civil::Date>().is_ok(),
        "duration" => is_go_duration(text),
        "byte" => base64::engine::general_purpose::STANDARD.decode(text).is_ok(),
        "ipv4" => text.parse::<Ipv4Addr>().is_ok(),
        "ipv6" => text.parse::<Ipv6Addr>().is_ok(),
        "cidr" => is_cidr(text),
        "hostname" => is_hostname(text),
        "email" => is_email(text),
        "uri" => is_uri(text),
        "uuid" | "uuid3" | "uuid4" | "uuid5" => is_uuid(text, format.strip_prefix("uuid").unwrap_or_default()),
        "mac" => is_mac(text),
        "hexcolor" => is_hex_color(text),
        "k8s-short-name" => is_label(text),
        "k8s-long-name" => text.len() <= 253 && text.split('.').all(is_label),
        _ => return None,
    })
}

/// Go's duration text: a sign, then numbers with units; at least one unit unless zero.
pub(super) fn is_go_duration(text: &str) -> bool {
    let body = text.strip_prefix(['+', '-']).unwrap_or(text);
    if body == "0" {
        return true;
    }
    let mut rest = body;
    while !rest.is_empty() {
        let digits = rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
        let number = &rest[..rest.len() - digits.len()];
        if !number.contains(|c: char| c.is_ascii_digit()) || number.matches('.').count() > 1 {
            return false;
        }
        let units = ["ns", "us", "µs", "μs", "ms", "s", "m", "h"];
        let unit = units.iter().filter(|unit| digits.starts_with(**unit)).max_by_key(|unit| unit.len());
        match unit {
            Some(unit) => rest = &digits[unit.len()..],
            None => return false,
        }
    }
    !body.is_empty()
}

fn is_cidr(text: &str) -> bool {
    let Some((address, bits)) = text.split_once('/') else { return false };
    let Ok(bits) = bits.parse::<u8>() else { return false };
    address.parse::<Ipv4Addr>().is_ok() && bits <= 32 || address.parse::<Ipv6Addr>().is_ok() && bits <= 128
}

fn is_label(text: &str) -> bool {
    let is_inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    !text.is_empty() && text.len() <= 63 && text.chars().all(is_inner) && !text.starts_with('-') && !text.ends_with('-')
}

fn is_hostname(text: &str) -> bool {
    let name = text.strip_suffix('.').unwrap_or(text);
    !name.is_empty() && name.len() <= 255 && name.to_ascii_lowercase().split('.').all(is_label)
}

fn is_email(text: &str) -> bool {
    let Some((local, domain)) = text.rsplit_once('@') else { return false };
    !local.is_empty()
        && !local.contains(|c: char| c.is_whitespace() || c.is_control() || c == '@')
        && is_hostname(domain)
}

/// An absolute URI, or a path on the same host, which Go's request URIs may be too.
fn is_uri(text: &str) -> bool {
    let has_scheme = text.split_once(':').is_some_and(|(scheme, rest)| {
        !rest.is_empty()
            && scheme.starts_with(|c: char| c.is_ascii_alphabetic())
            && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
    });
    (has_scheme || text.starts_with('/')) && !text.contains(|c: char| c.is_whitespace() || c.is_control())
}

fn is_uuid(text: &str, version: &str) -> bool {
    let bare: String = text.chars().filter(|c| *c != '-').collect();
    let is_shaped =
        text.len() == 36 && [8, 13, 18, 23].iter().all(|at| text.as_bytes()[*at] == b'-') || text.len() == 32;
    bare.len() == 32
        && is_shaped
        && bare.chars().all(|c| c.is_ascii_hexdigit())
        && (version.is_empty() || bare[12..].starts_with(version))
}

fn is_mac(text: &str) -> bool {
    let separator = if text.contains('-') { '-' } else { ':' };
    let parts: Vec<&str> = text.split(separator).collect();
    [6, 8, 20].contains(&parts.len())
        && parts.iter().all(|part| part.len() == 2 && part.chars().all(|c| c.is_ascii_hexdigit()))
}

fn is_hex_color(text: &str) -> bool {
    let digits = text.strip_prefix('#').unwrap_or(text);
    [3, 6].contains(&digits.len()) && digits.chars().all(|c| c.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats() {
        for (format, good, bad) in [
            ("date-time", "2026-01-01T00:00:00Z", "2026-01-01"),
            ("date", "2026-01-01", "2026-1-1"),
            ("duration", "1h5m0.5s", "1x"),
            ("duration", "-3ms", ""),
            ("byte", "YQ==", "*"),
            ("ipv4", "1.2.3.4", "1.2.3"),
            ("ipv6", "::1", "1.2.3.4"),
            ("cidr", "10.0.0.0/8", "10.0.0.0/33"),
            ("hostname", "a.B-c.d", "-a"),
            ("email", "a@b.c", "a@"),
            ("uri", "https://a/b", "a b"),
            ("uuid", "123e4567-e89b-12d3-a456-426614174000", "123e4567"),
            ("uuid4", "123e4567-e89b-42d3-a456-426614174000", "123e4567-e89b-12d3-a456-426614174000"),
            ("mac", "00:11:22:33:44:55", "00:11"),
            ("hexcolor", "#fff", "#ffff"),
            ("k8s-short-name", "a-b", "A"),
            ("k8s-long-name", "a.b", "a..b"),
        ] {
            assert_eq!(has_format(good, format), Some(true), "{format} {good}");
            assert_eq!(has_format(bad, format), Some(false), "{format} {bad}");
        }
        assert_eq!(has_format("x", "unknown"), None);
    }
}
