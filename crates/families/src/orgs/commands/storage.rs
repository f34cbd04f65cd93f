//! Volumes, where they are attached, their snapshots, and what is restored from those.

use kinds::fields::text;
use serde_json::{Value, json};

use super::super::names::*;
use super::super::numbers::NUMBER_MAX;
use super::super::usage::is_under_way;
use super::Given;
use super::body::{Body, check_name};
use super::problem::Problem;
use super::work::{Asking, Done, Outcome, Stored};

/// The smallest volume.
const SIZE_BYTES_MIN: i64 = 1 << 30;

pub fn create_volume(given: &Given<'_>, asking: &mut Asking<'_>) -> Result<Outcome, Problem> {
    let body = Body::of(given.body, &["name", "size_bytes", "filesystem", "home_node"])?;
    let size = body.whole("size_bytes", SIZE_BYTES_MIN, NUMBER_MAX)?;
    let size = size.ok_or_else(|| Problem::invalid("size_bytes", "it is missing"))?;
    let filesystem = body.word("filesystem", &["ext4"])?.unwrap_or("ext4");
    let shown = body.text("name")?.unwrap_or_default();
    asking.load(ORGS, asking.org)?;
    let node = match body.text("home_node")? {
        Some(node) => {
            check_name("home_node", node)?;
            node
        }
        None => "",
    };
    let name = asking.new_id("v");
    let spec = json!({
        "name": shown, "size_bytes": size, "filesystem": filesystem, "state": "available", "home_node": node,
    });
    let mut out = Outcome::new(Done::Created);
    let payload = json!({"size_bytes": size, "home_node_id": node});
    let row = asking.create(&mut out, VOLUMES, &name, spec, "volume.created", payload);
    Ok(out.showing(row))
}

pub fn delete_volume(given: &Given<'_>, asking: &mut Asking<'_>) -> Result<Outcome, Problem> {
    let stored = asking.load_to_change(VOLUMES, given.name("volume"))?;
    let mut out = Outcome::new(Done::Deleted);
    asking.delete(&mut out, &stored, "volume.deleted", json!({"size_bytes": stored.spec()["size_bytes"]}));
    Ok(out)
}

pub fn create_attachment(given: &Given<'_>, asking: &mut Asking<'_>) -> Result<Outcome, Problem> {
    let body = Body::of(given.body, &["volume", "process_type", "mount_path"])?;
    let volume = body.needed_text("volume")?;
    let process_type = body.text("process_type")?.unwrap_or("web");
    check_name("process_type", process_type)?;
    let path = body.needed_text("mount_path")?;
    if !path.starts_with('/') || path.split('/').any(|part| part == "..") {
        return Err(Problem::invalid("mount_path", "it is no absolute path"));
    }
    let env = env_name(given.name("app"), given.name("env"));
    asking.load(ENVS, &env)?;
    asking.load(VOLUMES, volume)?;
    let name = asking.new_id("a");
    let spec = json!({
        "volume": volume, "app": given.name("app"), "env": given.name("env"), "process_type": process_type,
        "mount_path": path,
    });
    let mut out = Outcome::new(Done::Created);
    let payload = json!({"volume_id": volume, "process_type": process_type, "mount_path": path});
    let row = asking.create(&mut out, ATTACHMENTS, &name, spec, "volume_attachment.created", payload);
    Ok(out.showing(row))
}

pub fn delete_attachment(given: &Given<'_>, asking: &mut Asking<'_>) -> Result<Outcome, Problem> {
    let stored = asking.load_to_change(ATTACHMENTS, given.name("attachment"))?;
    let of = |field: &str| text(stored.spec(), &[field]).to_owned();
    if of("app") != given.name("app") || of("env") != given.name("env") {
        return Err(Problem::not_found("volume attachment", given.name("attachment")));
    }
    let mut out = Outcome::new(Done::Deleted);
    asking.delete(&mut out, &stored, "volume_attachment.deleted", json!({"volume_id": of("volume")}));
    Ok(out)
}

pub fn create_snapshot(given: &Given<'_>, asking: &mut Asking<'_>) -> Result<Outcome, Problem> {
    Body::of(given.body, &[])?;
    let volume = asking.load(VOLUMES, given.name("volume"))?;
    let name = asking.new_id("s");
    let spec = json!({"volume": volume.name, "size_bytes": volume.spec()["size_bytes"], "status": "queued"});
    let mut out = Outcome::new(Done::Created);
    let payload = json!({"volume_id": volume.name});
    let row = asking.create(&mut out, SNAPSHOTS, &name, spec, "snapshot.created", payload);
    Ok(out.showing(row))
}

pub fn delete_snapshot(given: &Given<'_>, asking: &mut Asking<'_>) -> Result<Outcome, Problem> {
    let stored = asking.load_to_change(SNAPSHOTS, given.name("snapshot"))?;
    if is_under_way(text(stored.spec(), &["status"])) {
        return Err(Problem::conflict("snapshot_in_progress", "the snapshot is under way"));
    }
    let mut out = Outcome::new(Done::Deleted);
    asking.delete(&mut out, &stored, "snapshot.deleted", json!({"volume_id": stored.spec()["volume"]}));
    Ok(out)
}

/// Where a job has got to, as whoever does it says: forward only, and an end is an end.
fn set_status(asking: &mut Asking<'_>, given: &Given<'_>, stored: &Stored, event: &str) -> Result<Outcome, Problem> {
    let body = Body::of(given.body, &["status"])?;
    let status = body.word("status", &["running", "succeeded", "failed"])?;
    let status = status.ok_or_else(|| Problem::invalid("status", "it is missing"))?;
    let was = text(stored.spec(), &["status"]).to_owned();
    if was == status {
        return Ok(Outcome::as_it_was(stored));
    }
    if !is_under_way(&was) {
        return Err(Problem::conflict("job_ended", format!("it has {was} already")));
    }
    let mut spec = stored.spec().clone();
    spec["status"] = json!(status);
    let mut out = Outcome::new(Done::Changed);
    let row = asking.change(&mut out, stored, spec, &[(event, json!({"old": was, "new": status}))]);
    Ok(out.showing(row))
}

pub fn set_snapshot_status(given: &Given<'_>, asking: &mut Asking<'_>) -> Result<Outcome, Problem> {
    let stored = asking.load_to_change(SNAPSHOTS, given.name("snapshot"))?;
    set_status(asking, given, &stored, "snapshot.status_changed")
}

/// A snapshot becomes a volume of its own: the job and the volume are decided together.
pub fn create_restore(given: &Given<'_>, asking: &mut Asking<'_>) -> Result<Outcome, Problem> {
    let body = Body::of(given.body, &["snapshot", "name"])?;
    let source = asking.load(VOLUMES, given.name("volume"))?;
    let snapshot = asking.load(SNAPSHOTS, body.needed_text("snapshot")?)?;
    if text(snapshot.spec(), &["volume"]) != source.name {
        return Err(Problem::invalid("snapshot", "it is of another volume"));
    }
    if text(snapshot.spec(), &["status"]) != "succeeded" {
        return Err(Problem::conflict("snapshot_not_ready", "the snapshot has not succeeded"));
    }
    let (volume, job) = (asking.new_id("v"), asking.new_id("j"));
    let mut out = Outcome::new(Done::Created);
    let spec = json!({
        "name": body.text("name")?.unwrap_or_default(), "size_bytes": snapshot.spec()["size_bytes"],
        "filesystem": source.spec()["filesystem"], "state": "creating", "home_node": source.spec()["home_node"],
        "source_snapshot": snapshot.name,
    });
    let payload = json!({"size_bytes": snapshot.spec()["size_bytes"], "source_snapshot_id": snapshot.name});
    asking.create(&mut out, VOLUMES, &volume, spec, "volume.created", payload);
    let spec = json!({
        "source_volume": source.name, "snapshot": snapshot.name, "target_volume": volume, "status": "queued",
    });
    let payload = json!({"snapshot_id": snapshot.name, "target_volume_id": volume});
    let row = asking.create(&mut out, RESTORE_JOBS, &job, spec, "restore_job.created", payload);
    Ok(out.showing(row))
}

/// A job that has ended is forgotten; what it restored stays.
pub fn delete_restore(given: &Given<'_>, asking: &mut Asking<'_>) -> Result<Outcome, Problem> {
    let stored = asking.load_to_change(RESTORE_JOBS, given.name("job"))?;
    if is_under_way(text(stored.spec(), &["status"])) {
        return Err(Problem::conflict("restore_in_progress", "the restore is under way"));
    }
    let mut out = Outcome::new(Done::Deleted);
    let payload = json!({"target_volume_id": stored.spec()["target_volume"]});
    asking.delete(&mut out, &stored, "restore_job.deleted", payload);
    Ok(out)
}

pub fn set_restore_status(given: &Given<'_>, asking: &mut Asking<'_>) -> Result<Outcome, Problem> {
    let stored = asking.load_to_change(RESTORE_JOBS, given.name("job"))?;
    let mut out = set_status(asking, given, &stored, "restore_job.status_changed")?;
    let status = given.body.get("status").and_then(Value::as_str).unwrap_or_default();
    if out.done == Done::Changed
        && matches!(status, "succeeded" | "failed")
        && let Some(volume) = asking.find(VOLUMES, text(stored.spec(), &["target_volume"]))
    {
        let mut spec = volume.spec().clone();
        spec["state"] = json!(if status == "succeeded" { "available" } else { "error" });
        let payload = json!({"state": spec["state"]});
        asking.change(&mut out, &volume, spec, &[("volume.status_changed", payload)]);
    }
    Ok(out)
}
