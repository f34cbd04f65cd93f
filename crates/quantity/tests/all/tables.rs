//! What Kubernetes' own library answered, row by row.

use quantity::{Amount, Format, ParseError, Quantity};

/// `input | printed after parsing | printed after arithmetic | after rounding to milli`; `=` repeats the second column.
const SPELLINGS: &str = "
    0                       | 0                   | =                   | =
    01                      | 01                  | 1                   | 01
    +1                      | +1                  | 1                   | +1
    1.5                     | 1500m               | =                   | =
    1.500                   | 1.500               | 1500m               | 1.500
    .5                      | 500m                | =                   | =
    0.5                     | 500m                | =                   | =
    5.                      | 5.                  | 5                   | 5.
    .                       | 0                   | =                   | =
    +                       | 0                   | =                   | =
    -                       | 0                   | =                   | =
    1.Gi                    | 1.Gi                | 1Gi                 | 1.Gi
    +1Ki                    | +1Ki                | 1Ki                 | +1Ki
    01Ki                    | 01Ki                | 1Ki                 | 01Ki
    1024Ki                  | 1Mi                 | =                   | =
    1000Ki                  | 1000Ki              | =                   | =
    1.5Gi                   | 1536Mi              | =                   | =
    0.5Ki                   | 512                 | =                   | =
    0.1Ki                   | 102400m             | =                   | =
    1.1Ki                   | 1126400m            | =                   | =
    0.001Ki                 | 1024m               | =                   | =
    3.001Ki                 | 3073024m            | =                   | =
    1000                    | 1k                  | =                   | =
    1000k                   | 1M                  | =                   | =
    1024                    | 1024                | =                   | =
    1000m                   | 1                   | =                   | =
    1e3                     | 1e3                 | 1e3                 | 1e3
    1E3                     | 1E3                 | 1e3                 | 1E3
    1E+3                    | 1E+3                | 1e3                 | 1E+3
    12.3e4                  | 12.3e4              | 123e3               | 12.3e4
    2.5e3                   | 2500                | =                   | =
    1E1                     | 10                  | =                   | =
    5e-4                    | 500e-6              | =                   | 1e-3
    1e19                    | 10e18               | =                   | =
    100000000000000000000   | 100E                | =                   | =
    0.1m                    | 100u                | =                   | 1m
    1500u                   | 1500u               | =                   | 2m
    0.1n                    | 1n                  | =                   | 1m
    1e-10                   | 1e-9                | =                   | 1e-3
    1.000000001             | 1.000000001         | 1000000001n         | 1001m
    0.000000001Ki           | 1024n               | =                   | 1m
    0.00000000000000000001Gi | 1n                 | =                   | 1m
    12345.6789k             | 12345678900m        | =                   | =
    9223372036854775808     | 9223372036854775808 | =                   | =
    8Ei                     | 9223372036854775807 | =                   | =
    10Ei                    | 9223372036854775807 | =                   | =
    9223372036854775807Ki   | 9223372036854775807 | =                   | =
    -10Ei                   | -9223372036854775807 | =                  | =
    7Ei                     | 7Ei                 | =                   | =
    -0                      | 0                   | =                   | =
    0000                    | 0                   | =                   | =
    -1.5                    | -1500m              | =                   | =
    -0.1n                   | -1n                 | =                   | -1m
    00000000000000000000001 | 00000000000000000000001 | 1               | 00000000000000000000001
    4096Mi                  | 4Gi                 | =                   | =
    4095Mi                  | 4095Mi              | =                   | =
    1000000Mi               | 1000000Mi           | =                   | =
    1e60                    | too large           |                     |
    1000E                   | unprintable         |                     |
    1000000000000000000000  | unprintable         |                     |
    2000E                   | unprintable         |                     |
    1001E                   | 1001E               | =                   | =
    Ei                      | numeric             |                     |
    -Pi                     | numeric             |                     |
    .Ei                     | numeric             |                     |
    e-10                    | numeric             |                     |
    Ti                      | 0                   | =                   | =
    e5                      | 0                   | =                   | =
    0Ei                     | 0                   | =                   | =
    999E                    | 999E                | =                   | =
    1e28                    | 10e27               | =                   | =
    1e29                    | too large           |                     |
    1e-60                   | 1e-9                | =                   | 1e-3
    1e4294967299            | exponent            |                     |
    1e2147483648            | exponent            |                     |
    1e-2147483647           | exponent            |                     |
    1e61                    | exponent            |                     |
    0e61                    | exponent            |                     |
    1e9223372036854775808   | suffix              |                     |
    1e                      | suffix              |                     |
    1e+                     | suffix              |                     |
    1.5e                    | suffix              |                     |
    1K                      | suffix              |                     |
    1ki                     | suffix              |                     |
    1mi                     | suffix              |                     |
    1i                      | suffix              |                     |
    100Mi1                  | suffix              |                     |
    1kb                     | format              |                     |
    1GB                     | format              |                     |
    1_Gi                    | format              |                     |
    1e1.5                   | format              |                     |
    1.2.3                   | format              |                     |
    0x10                    | format              |                     |
    1Gi_                    | format              |                     |
    --1                     | suffix              |                     |
    １                      | format              |                     |
    NaN                     | format              |                     |
    Inf                     | format              |                     |
";

#[test]
fn spelling_after_parse_arithmetic_and_rounding() {
    for row in rows(SPELLINGS) {
        let columns: Vec<&str> = row.split('|').map(str::trim).collect();
        let [input, printed, recomputed, rounded] = columns[..] else { panic!("bad row: {row}") };
        let input = input.replace('_', " "); // a space inside a cell
        let parsed = match Quantity::parse(&input) {
            Ok(parsed) => parsed,
            Err(error) => {
                assert_eq!(error_name(error), printed, "{input}");
                continue;
            }
        };
        let or_same = |cell: &str| if cell == "=" { printed.to_string() } else { cell.to_string() };
        assert_eq!(parsed.to_string(), printed, "{input}");
        let sum = parsed.checked_add(&Quantity::ZERO).expect("adding zero");
        assert_eq!(sum.to_string(), or_same(recomputed), "{input} recomputed");
        assert_eq!(parsed.canonical().to_string(), or_same(recomputed), "{input} canonical");
        assert_eq!(parsed.round_up_milli().to_string(), or_same(rounded), "{input} to milli");
    }
}

#[test]
fn the_empty_text_and_spaces_are_refused() {
    for input in ["", " ", "1Gi ", " 1Gi", "1 Gi", "1\u{0}"] {
        assert_eq!(Quantity::parse(input), Err(ParseError::Format), "{input:?}");
    }
}

#[test]
fn length_is_refused_before_anything_else() {
    let longest = "0".repeat(quantity::TEXT_BYTES_MAX - 1) + "1";
    assert_eq!(Quantity::parse(&longest).map(|q| q.amount()), Ok(Amount::from_units(1)));
    assert_eq!(Quantity::parse(&(longest + "0")), Err(ParseError::TooLong));
    assert_eq!(Quantity::parse(&"9".repeat(64 * 1024)), Err(ParseError::TooLong));
    assert_eq!(Quantity::parse(&"9".repeat(64)), Err(ParseError::TooLarge));
}

/// `left op right = text`, and the format of the result where the text does not show it.
const SUMS: &str = "
    0     + 1Gi    = 1Gi        BinarySi
    1Gi   + 1G     = 2073741824 BinarySi
    1G    + 1Gi    = 2073741824 DecimalSi
    500m  + 500m   = 1
    1Ki   + 1m     = 1024001m   BinarySi
    100Mi + 1      = 104857601
    1Ki   - 1      = 1023       BinarySi
    8Ei   + 8Ei    = 18446744073709551614
    5E    + 5E     = 10E
    999E  + 1E     = none
    999E  + 2E     = 1001E
    999E  + 1      = 999000000000000000001
    1e3   + 1k     = 2e3        DecimalExponent
    0e3   + 1k     = 1k         DecimalSi
    1E    + 1n     = 1000000000000000000000000001n
    0     - 1Gi    = -1Gi       BinarySi
    1.5Gi + 0.5Gi  = 2Gi
    2Gi   - 640Mi  = 1408Mi
    2Gi   - 2Gi    = 0          BinarySi
    01    + 0      = 1
    01    * 1      = 1
    1.5Gi * 4      = 6Gi
    1Gi   * 0      = 0          BinarySi
    100m  * -15    = -1500m
    1E    * 999    = 999E
    1E    * 1000   = none
    7Ei   * 146    = 1022Ei     BinarySi
    7Ei   * 147    = 1029Ei     BinarySi
    7Ei   * 1024   = none
    1e28  * 9      = 90e27
    1e28  * 10     = none
";

#[test]
fn arithmetic_is_exact_and_picks_the_format() {
    for row in rows(SUMS) {
        let words: Vec<&str> = row.split_whitespace().collect();
        let (left, operator, right, expected) = (parse(words[0]), words[1], words[2], words[4]);
        let result = match operator {
            "+" => left.checked_add(&parse(right)),
            "-" => left.checked_sub(&parse(right)),
            "*" => left.checked_mul(right.parse().expect("a factor")),
            other => panic!("operator {other}"),
        };
        assert_eq!(result.as_ref().map_or("none".to_string(), Quantity::to_string), expected, "{row}");
        if let (Some(result), Some(format)) = (result, words.get(5)) {
            assert_eq!(format!("{:?}", result.format()), *format, "{row}");
        }
    }
}

#[test]
fn an_uninitialised_quantity_takes_the_format_of_what_is_added() {
    assert_eq!(Quantity::default().checked_add(&parse("5Gi")).map(|sum| sum.to_string()), Some("5Gi".into()));
}

#[test]
fn comparison_is_numeric() {
    assert_eq!(parse("1Gi"), parse("1073741824"));
    assert_eq!(parse("1.500"), parse("1500m"));
    assert!(parse("1G") < parse("1Gi"));
    assert!(parse("-1") < parse("0"));
}

#[test]
fn formats_have_a_stable_byte() {
    for format in [Format::DecimalSi, Format::BinarySi, Format::DecimalExponent] {
        assert_eq!(Format::from_u8(format.to_u8()), Some(format));
    }
    assert_eq!(Format::from_u8(3), None);
}

#[test]
fn errors_speak_as_kubernetes_does() {
    let text = |error: ParseError| error.to_string();
    assert_eq!(
        text(ParseError::Format),
        "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
    );
    assert_eq!(text(ParseError::Numeric), "unable to parse numeric part of quantity");
    assert_eq!(text(ParseError::Suffix), "unable to parse quantity's suffix");
}

#[test]
fn amounts_round_away_from_zero_and_stop_at_the_end() {
    let milli = |nanos| Amount::from_nanos(nanos).round_up_milli().map(Amount::nanos);
    assert_eq!(milli(0), Some(0));
    assert_eq!(milli(1), Some(1_000_000));
    assert_eq!(milli(-1), Some(-1_000_000));
    assert_eq!(milli(2_000_000), Some(2_000_000));
    assert_eq!(milli(i128::MAX), None);
    assert_eq!(milli(i128::MIN), None);
    assert_eq!(Amount::from_nanos(1_500_000_000).round_up_units(), Some(Amount::from_units(2)));
    assert_eq!(Amount::from_units(i64::MIN).to_units(), Some(i64::MIN));
    assert_eq!(Amount::from_millis(1500).to_units(), None);
}

#[test]
fn every_amount_prints_the_value_it_has() {
    let rows = [
        (i128::MAX, "170141183460469231731687303715884105727n"),
        (i128::MIN, "-170141183460469231731687303715884105728n"),
        (10i128.pow(30), "1000E"),
        (10i128.pow(36), "1000000000E"),
        (-1, "-1n"),
    ];
    for (nanos, text) in rows {
        assert_eq!(Amount::from_nanos(nanos).to_string(), text);
    }
    let wide = Quantity::new(Amount::from_nanos((1i128 << 80) * 1_000_000_000), Format::BinarySi);
    assert_eq!(wide.to_string(), "1048576Ei");
}

fn rows(table: &str) -> impl Iterator<Item = &str> {
    table.lines().map(str::trim).filter(|line| !line.is_empty())
}

fn parse(text: &str) -> Quantity {
    Quantity::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn error_name(error: ParseError) -> &'static str {
    match error {
        ParseError::Format => "format",
        ParseError::Numeric => "numeric",
        ParseError::Suffix => "suffix",
        ParseError::TooLong => "too long",
        ParseError::Exponent => "exponent",
        ParseError::Unprintable => "unprintable",
        ParseError::TooLarge => "too large",
    }
}
