//! The durable rows: golden bytes, and damage of every kind.

use std::collections::BTreeMap;

use ledger::{
    AccountKey, Charge, Discipline, Ledger, Limit, LoadError, Position, ROW_VERSION, Receipt, Standing, SubjectId,
    Terms, Wait,
};
use quantity::{Amount, Format};

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

fn sample() -> (Ledger, Rows) {
    let mut ledger = Ledger::new();
    let units = Amount::from_units;
    let cpu = ledger.open(AccountKey::new("team-a", "cpu", ""), Limit::Enforced(units(4))).unwrap();
    let memory = ledger.open(AccountKey::new("team-a", "memory", "eu"), Limit::Observed(units(1 << 30))).unwrap();
    let gone = ledger.open(AccountKey::new("gone", "x", ""), Limit::Unlimited).unwrap();
    let pods = ledger.open(AccountKey::new("pods", "count/pods", ""), Limit::Unlimited).unwrap();
    let of = Charge::new;
    let done: Result<Vec<Receipt>, _> = [
        (1, vec![of(cpu, units(3), Format::DecimalSi), of(memory, units(1 << 20), Format::BinarySi)], Standing::Stored),
        (2, vec![of(cpu, Amount::from_nanos(500_000_000), Format::DecimalSi)], Standing::Held { expires_at_ms: -7 }),
        (1 << 100, vec![of(pods, units(1), Format::DecimalExponent)], Standing::Stored),
        (1 << 100, vec![of(pods, units(2), Format::DecimalSi)], Standing::Held { expires_at_ms: 1_700_000_000_000 }),
        (
            3,
            vec![of(cpu, units(4), Format::DecimalSi).on(Terms::InLine)],
            Standing::MayWait(Wait {
                discipline: Discipline::Ordered,
                position: Position { priority: -1, arrived: 1_700_000_000_000, tie: "web/team-a".into() },
            }),
        ),
    ]
    .into_iter()
    .map(|(id, charges, standing)| ledger.charge(SubjectId(id), &charges, &standing))
    .collect();
    done.unwrap();
    let _ = ledger.close(gone).unwrap();
    let mut rows = Rows::new();
    ledger.drain_changes(&mut |row| {
        if let Some(value) = row.value {
            rows.insert(row.key.to_vec(), value.to_vec());
        }
    });
    (ledger, rows)
}

fn load(rows: &Rows) -> Result<Ledger, LoadError> {
    Ledger::load(rows.iter().map(|(key, value)| (&key[..], &value[..])))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Stored data must be readable by every later release: these bytes may only be added to, under a new version.
const GOLDEN: &str = include_str!("golden-rows-v1.txt");

#[test]
fn rows_are_written_as_in_the_golden_file() {
    let (_, rows) = sample();
    let written: Vec<String> = rows.iter().map(|(key, value)| format!("{} {}", hex(key), hex(value))).collect();
    let golden: Vec<&str> = GOLDEN.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(written, golden);
}

#[test]
fn the_golden_file_still_loads() {
    let bytes = |text: &str| -> Vec<u8> {
        let pairs = text.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).unwrap());
        pairs.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect()
    };
    let lines = GOLDEN.lines().filter(|line| !line.starts_with('#'));
    let rows: Rows = lines.map(|line| line.split_once(' ').unwrap()).map(|(k, v)| (bytes(k), bytes(v))).collect();
    assert_eq!(load(&rows).unwrap().digest(), sample().0.digest());
}

#[test]
fn an_empty_store_is_an_empty_ledger() {
    let ledger = load(&Rows::new()).unwrap();
    assert_eq!((ledger.sequence(), ledger.accounts_open(), ledger.subjects_live()), (0, 0, 0));
}

/// Loads damaged rows. Either the damage is seen, or the rows make some sound ledger: never a panic, never books
/// that do not add up. (That rows are the ones that were written is the store's checksum to tell.)
fn load_damaged(rows: &Rows) -> bool {
    match load(rows) {
        Ok(ledger) => ledger.audit().map(|()| false).expect("a loaded ledger adds up"),
        Err(error) => !error.to_string().is_empty(),
    }
}

#[test]
fn every_cut_of_every_row_is_refused() {
    let (_, rows) = sample();
    for (key, value) in &rows {
        for length in 0..value.len() {
            let mut damaged = rows.clone();
            damaged.insert(key.clone(), value[..length].to_vec());
            assert!(load_damaged(&damaged), "{} cut to {length} bytes was believed", hex(key));
        }
        let mut longer = rows.clone();
        longer.entry(key.clone()).and_modify(|value| value.push(0));
        assert!(load_damaged(&longer), "{} with a byte more was believed", hex(key));
        for length in 0..key.len() {
            let mut damaged = rows.clone();
            let value = damaged.remove(key).unwrap();
            damaged.insert(key[..length].to_vec(), value);
            load_damaged(&damaged);
        }
    }
}

#[test]
fn every_changed_byte_ends_in_an_error_or_a_sound_ledger() {
    let (_, rows) = sample();
    for (key, value) in &rows {
        for at in 0..value.len() {
            for byte in 0..=u8::MAX {
                let mut damaged = rows.clone();
                damaged.entry(key.clone()).and_modify(|value| value[at] = byte);
                load_damaged(&damaged);
            }
        }
    }
}

#[test]
fn every_missing_row_but_a_subject_is_noticed() {
    let (_, rows) = sample();
    for key in rows.keys() {
        let mut damaged = rows.clone();
        damaged.remove(key);
        let is_subject = key[0] == b's';
        assert!(load_damaged(&damaged) || is_subject, "{} is missing and nobody noticed", hex(key));
    }
}

#[test]
fn what_damage_is_called() {
    let (_, rows) = sample();
    let says = |key: &[u8], value: &[u8]| {
        let mut damaged = rows.clone();
        damaged.insert(key.to_vec(), value.to_vec());
        load(&damaged).unwrap_err().to_string()
    };
    let v = ROW_VERSION;
    let mut subject = [b's'; 17];
    subject[1..].copy_from_slice(&9u128.to_be_bytes());
    let cases: &[(&[u8], &[u8], &str)] = &[
        (b"m", &[], "ledger row 6d: it is empty"),
        (b"m", &[9, 1, 1], "ledger row 6d is written in format 9, this release reads up to 1"),
        (b"m", &[v, 1, 1], "no such account was opened"),
        (b"m", &[v, 1, 9], "is of step 5, the ledger ends at 1"),
        (b"m", &[v, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1, 9], "beyond any that was taken"),
        (b"x", &[v], "its key is of no known kind"),
        (b"", &[v], "its key is of no known kind"),
        (b"a1", &[v], "an account key has four bytes"),
        (b"s1", &[v], "a subject key has sixteen bytes"),
        (&subject, &[v, 0, 1, 0], "it has no lines"),
        (&subject, &[v, 0, 0, 1, 0, 1], "no step made it"),
        (&subject, &[v, 0, 1, 1, 0, 0], "a line is zero"),
        (&subject, &[v, 0, 1, 1, 0x80, 0x00, 1], "a number is padded"),
        (&subject, &[v, 0, 1, 2, 4, 1, 0, 1], "lines are out of order"),
        (&subject, &[v, 0, 1, 1, 3, 1], "a format is unknown"),
        (&subject, &[v, 4, 1, 1, 0, 1], "a state is unknown"),
        (&subject, &[v, 0, 1, 1, 0xfc, 1, 1], "which is not stored"),
        (&subject, &[v, 2, 1, 2, 0, 0, 0, 0], "a discipline is unknown"),
        (&subject, &[v, 2, 1, 0, 0, 0, 1, 0xff, 0], "a text is not UTF-8"),
        (&subject, &[v, 2, 1, 0, 0, 0, 0, 0], "it has no lines"),
        (&subject, &[v, 2, 1, 0, 0, 0, 9, 0], "a text is too long"),
    ];
    for (key, value, expected) in cases {
        let said = says(key, value);
        assert!(said.contains(expected), "{} {}: {said}", hex(key), hex(value));
    }
}

#[test]
fn the_same_key_twice_is_refused() {
    let (_, mut rows) = sample();
    let first = rows[&b"a\0\0\0\0"[..]].clone();
    rows.insert(b"a\0\0\0\x02".to_vec(), first);
    assert!(matches!(load(&rows), Err(LoadError::SameKey { .. })));
    let (_, rows) = sample();
    let twice = rows.iter().chain(&rows).map(|(key, value)| (&key[..], &value[..]));
    assert!(Ledger::load(twice).unwrap_err().to_string().contains("it is stored twice"));
}

#[test]
fn a_subject_that_was_adopted_with_many_charges_can_be_read_again() {
    let mut ledger = Ledger::new();
    let open = |number: usize| AccountKey::new(&format!("quota-{number}"), "pods", "");
    let accounts: Vec<_> =
        (0..=ledger::CHARGES_MAX).map(|number| ledger.open(open(number), Limit::Unlimited).unwrap()).collect();
    let one = |account: &_| Charge::new(*account, Amount::from_units(1), Format::DecimalSi).on(Terms::Adopted);
    let charges: Vec<Charge> = accounts.iter().map(one).collect();
    assert!(ledger.charge(SubjectId(1), &charges, &Standing::Stored).unwrap().changed);
    let mut rows = Rows::new();
    ledger.drain_changes(&mut |row| {
        rows.insert(row.key.to_vec(), row.value.unwrap().to_vec());
    });
    assert_eq!(load(&rows).unwrap().digest(), ledger.digest());
}

/// Three of cpu, waiting for five, and one pod beside it.
#[test]
fn who_waits_for_more_is_stored_with_what_it_has() {
    let mut ledger = Ledger::new();
    let units = Amount::from_units;
    let cpu = ledger.open(AccountKey::new("pool", "cpu", ""), Limit::Enforced(units(4))).unwrap();
    let pods = ledger.open(AccountKey::new("count", "pods", ""), Limit::Enforced(units(1))).unwrap();
    let position = Position { priority: 0, arrived: 1, tie: "t".into() };
    let standing = Standing::MayWait(Wait { discipline: Discipline::Greedy, position });
    for wanted in [3, 5] {
        let charges = [
            Charge::new(cpu, units(wanted), Format::DecimalSi).on(Terms::InLine),
            Charge::new(pods, units(1), Format::DecimalSi),
        ];
        let _ = ledger.charge(SubjectId(7), &charges, &standing).unwrap();
    }
    let mut rows = Rows::new();
    ledger.drain_changes(&mut |row| drop(rows.insert(row.key.to_vec(), row.value.unwrap().to_vec())));
    let row = rows.iter().find(|(key, _)| key[0] == b's').map(|(key, value)| (key.clone(), hex(value))).unwrap();
    assert_eq!(row.1, "01030400000201740100 80e497d012 0200 80bcc1960b 04 8094ebdc03".replace(' ', ""));
    assert_eq!(load(&rows).unwrap().digest(), ledger.digest());

    // More than it waits for, nothing to wait for, nothing that it has though it says so.
    let broken = ["01030400000201740100 80bcc1960b 0100 80e497d012", "01030400000201740100 80bcc1960b 0100 80bcc1960b"];
    for (value, why) in broken.into_iter().zip(["less than it has", "waits for nothing"]) {
        let value = value.replace(' ', "");
        let bytes = (0..value.len()).step_by(2).map(|at| u8::from_str_radix(&value[at..at + 2], 16).unwrap());
        rows.insert(row.0.clone(), bytes.collect());
        assert!(load(&rows).unwrap_err().to_string().contains(why), "{why}");
    }
    rows.insert(row.0, vec![1, 3, 4, 0, 0, 2, 1, b't', 1, 0, 1, 0]);
    assert!(load(&rows).unwrap_err().to_string().contains("says otherwise"));
}
