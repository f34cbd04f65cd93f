//! docs/limits.md says what the code does: its first table, row by row.

use std::time::Duration;

use super::{list, long, options, response, token, watch, yaml};
use crate::core::{cache, history, paged};
use crate::{authn, authz, body, config, front, inflight, listen, request};

const _: () = assert!(long::LONG_BYTES_MIN == 64 * 1024);

fn seconds(time: Duration) -> String {
    format!("{} s", time.as_secs())
}

fn mebibytes(bytes: usize) -> String {
    assert_eq!(bytes % (1024 * 1024), 0);
    format!("{} MiB", bytes / (1024 * 1024))
}

fn wide(bytes: u64) -> usize {
    usize::try_from(bytes).expect("fits")
}

/// What is bounded, and by how much.
fn rows() -> Vec<(&'static str, String)> {
    let (wire, seats) = (listen::Limits::default(), inflight::Limits::default());
    let part = format!("1/{} of it for one user, and no more than is left", inflight::PARTS);
    let bytes = |all: usize, field: &str| format!("{} (`limits.{field}`), {part}", mebibytes(all));
    let last = "of the last quarter nobody more than is left";
    let trusted = "a regular file that not everybody writes";
    vec![
        ("open connections", format!("{} (`limits.connections`)", wire.connections)),
        (
            "the same by open files (`ulimit -n`)",
            format!("all but {} for the store and others, and one in nine for those who wait", listen::FILES_KEPT),
        ),
        ("TLS handshake", seconds(wire.handshake)),
        ("from the handshake to the first request", seconds(wire.first_request)),
        ("connection without a request", seconds(wire.idle)),
        ("headers of a further HTTP/1.1 request", format!("{} from the request before", seconds(wire.idle))),
        (
            "silence of an HTTP/2 connection",
            format!("PING after {}, answered within {}", seconds(wire.ping_interval), seconds(wire.ping_timeout)),
        ),
        ("what was sent, until the client's host says that it has come", seconds(wire.unacknowledged)),
        ("HTTP version", "by ALPN; without it HTTP/1.1".into()),
        (
            "request line and headers",
            format!("{} bytes, HTTP/1.1 also {} headers", wire.header_bytes, listen::HTTP1_HEADERS_MAX),
        ),
        ("path", format!("{} bytes", request::PATH_BYTES_MAX)),
        ("query parameters", options::PARAMETERS_MAX.to_string()),
        ("bearer token", format!("{} bytes", authn::TOKEN_BYTES_MAX)),
        ("streams of an HTTP/2 connection", wire.streams.to_string()),
        ("streams reset before they were looked at", listen::RESET_STREAMS_MAX.to_string()),
        ("streams ended for protocol errors", listen::MISTAKEN_STREAMS_MAX.to_string()),
        ("request body", format!("{}, not compressed", mebibytes(body::BODY_BYTES_MAX))),
        ("time for a request body", seconds(body::BODY_TIME_MAX)),
        ("time for a request, watches left out", seconds(front::REQUEST_TIME_MAX)),
        ("request bodies under way", bytes(seats.body_bytes, "bodyMebibytes")),
        ("reads at once", format!("{} (`limits.readsInFlight`), {last}", seats.reads)),
        ("writes at once", format!("{} (`limits.writesInFlight`), {last}", seats.writes)),
        ("requests of one user that wait", format!("{} (`limits.queuePerUser`)", seats.queue_per_user)),
        ("requests of all users that wait", format!("{}, for {}", seats.queue, seconds(seats.wait))),
        ("answers under way, until their last byte has left", bytes(seats.answer_bytes, "answerMebibytes")),
        (
            "answers of one user that wait for room",
            format!("{}, of all {}", inflight::WAITING_PER_USER_MAX, inflight::WAITING_MAX),
        ),
        ("answer that is not taken", seconds(wire.stalled)),
        (
            "answer that is taken slowly",
            format!(
                "{} and one more for every {} bytes",
                seconds(wire.stalled * 2),
                listen::ANSWER_BYTES_PER_SECOND_MIN
            ),
        ),
        ("watches of one user", format!("{} (`limits.watchesPerUser`)", seats.watches_per_user)),
        ("watches of all users", format!("{}, system:masters not counted", seats.watches)),
        (
            "time of a watch",
            format!(
                "{}, without `timeoutSeconds` {} to twice that",
                seconds(watch::WATCH_TIME_MAX),
                seconds(watch::WATCH_TIME_MIN)
            ),
        ),
        (
            "changes kept for watches and exact lists",
            format!(
                "{} or {} of each resource, {} of all",
                history::EVENTS_MAX,
                mebibytes(history::BYTES_MAX),
                mebibytes(history::ALL_BYTES_MAX)
            ),
        ),
        (
            "changes handed to a watch that it has not sent yet",
            format!("{} KiB, or one", cache::WATCH_BATCH_BYTES_MAX / 1024),
        ),
        ("state that a watch begins with", "as an answer under way, until it is sent".into()),
        ("wait for a resourceVersion to come", format!("{}, or `timeoutSeconds`", seconds(list::CATCH_UP_TIME_MAX))),
        ("continue token", format!("{} bytes, made by this process for this very list", token::TOKEN_BYTES_MAX)),
        (
            "lists kept for their next pages",
            format!("{}, of one user {}", paged::PAGED_LISTS_MAX, paged::PAGED_LISTS_PER_USER_MAX),
        ),
        (
            "bytes of replaced objects they hold",
            format!(
                "{} each, {} in all",
                mebibytes(wide(paged::PAGED_LIST_BYTES_MAX)),
                mebibytes(wide(paged::PAGED_BYTES_MAX))
            ),
        ),
        (
            "answer in YAML",
            format!("{}, and {} times what it is in JSON", mebibytes(yaml::YAML_BYTES_MAX), yaml::GROWTH_MAX),
        ),
        (
            "long work, on more than 64 KiB, at once",
            format!(
                "two for each core, of one user three in four, users in turn, for {}",
                seconds(inflight::TURN_TIME_MAX)
            ),
        ),
        (
            "objects of more than 64 KiB read for lists and watches at once",
            format!("one for two cores, users in turn, for {}", seconds(inflight::TURN_TIME_MAX)),
        ),
        ("warnings of an answer", format!("{} of {} bytes", response::WARNINGS_MAX, response::WARNING_BYTES_MAX)),
        (
            "rules of roles looked at for one request",
            format!("{}, those for the whole cluster first", authz::RULES_MAX),
        ),
        (
            "single permissions of a role that is granted without being held as a whole",
            format!(
                "{}; {} steps of comparing them with what the writer holds",
                authz::PERMISSIONS_MAX,
                authz::STEPS_MAX
            ),
        ),
        (
            "missing permissions, or missing roles, that a refusal names",
            format!("{}, {}", authz::NAMED_MAX, authz::MISSING_NAMED_MAX),
        ),
        ("stopping", format!("{} (`limits.drainSeconds`) for requests under way", seconds(wire.drain))),
        ("configuration file", format!("{}, {trusted}", mebibytes(wide(config::FILE_BYTES_MAX)))),
        ("token file", format!("{}, {trusted}", mebibytes(wide(authn::TOKEN_FILE_BYTES_MAX)))),
    ]
}

#[test]
fn the_page_of_limits_is_true() {
    let page = include_str!("../../../../docs/limits.md");
    let section = page.split("\n## ").find(|section| section.starts_with("Connections,")).expect("the section");
    let shown: Vec<(&str, String)> = section
        .lines()
        .filter(|line| line.starts_with("| "))
        .skip(1)
        .map(|line| {
            let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
            assert_eq!(cells.len(), 3, "{line}");
            assert!(!cells[2].is_empty(), "{line}");
            (cells[0], cells[1].to_owned())
        })
        .collect();
    let expected = rows();
    for (shown, expected) in shown.iter().zip(&expected) {
        assert_eq!(shown, expected);
    }
    assert_eq!(shown.len(), expected.len());
    let dropped = format!("up to {} or {} more", mebibytes(body::DROPPED_BYTES_MAX), seconds(body::DROPPED_TIME_MAX));
    assert!(section.contains(&dropped), "{dropped}");
    assert_eq!(inflight::OWNER_PARTS * 4, inflight::PARTS, "a quarter is the owner's");
}
