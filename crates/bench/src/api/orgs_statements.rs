//! A scale command as most services do it: a transaction with a statement for each thing that is read or written, nine round trips.

use serde_json::{Map, Value, json};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Error, Row, Statement};

use super::orgs_service::Scale;

const DIMENSIONS: [&str; 3] = ["max_instances", "max_total_memory_bytes", "max_total_cpu_request"];

const LOCK: &str = "SELECT tier FROM orgs WHERE org_id = $1 FOR NO KEY UPDATE";

const KNOWN: &str = "SELECT request_hash = sha256(convert_to($4, 'UTF8')), answer FROM idempotency_keys
    WHERE org_id = $1 AND actor_id = $2 AND idempotency_key = $3 AND expires_at > now()";

/// The environment, and what runs of these process types of it.
const ENV: &str = "SELECT e.version, e.processes::text, to_jsonb(e.created_at)::text, (
        SELECT jsonb_object_agg(t, jsonb_build_array(i.many, i.memory, i.cpu, EXISTS (
            SELECT FROM volume_attachments_view v
            WHERE v.org_id = e.org_id AND v.app = e.app AND v.env = e.env AND v.process_type = t)))
        FROM unnest($4::text[]) t, LATERAL (
            SELECT count(*) AS many, coalesce(sum(memory_bytes), 0)::bigint AS memory, coalesce(sum(cpu_milli), 0)::bigint AS cpu
            FROM instances_desired_view i WHERE i.org_id = e.org_id AND i.app = e.app AND i.env = e.env
                AND i.process_type = t AND i.desired_state <> 'stopped') i
    )::text
    FROM envs_view e WHERE e.org_id = $1 AND e.app = $2 AND e.env = $3";

const LIMITS: &str = "SELECT u.usage, coalesce(q.limit_value, t.limit_value)
    FROM unnest($3::text[]) WITH ORDINALITY AS d(dimension, at)
    JOIN org_usage_view u ON u.org_id = $1 AND u.dimension = d.dimension
    LEFT JOIN org_quotas q ON q.org_id = $1 AND q.dimension = d.dimension AND (q.expires_at IS NULL OR q.expires_at > now())
    LEFT JOIN tier_limits t ON t.tier = $2 AND t.dimension = d.dimension ORDER BY d.at";

const REFUSED: &str = "INSERT INTO audit (org_id, actor_id, request_id, details) VALUES ($1, $2, $3, $4::text::jsonb)";

const USE: &str = "UPDATE org_usage_view u SET usage = u.usage + m.more, updated_at = now()
    FROM unnest($2::text[], $3::bigint[]) AS m(dimension, more)
    WHERE u.org_id = $1 AND u.dimension = m.dimension AND m.more <> 0";

const CHANGE: &str = "UPDATE envs_view SET version = $4, processes = $5::text::jsonb, changed_at = now()
    WHERE org_id = $1 AND app = $2 AND env = $3";

const TELL: &str =
    "INSERT INTO events (org_id, event_id, aggregate_type, aggregate_id, aggregate_seq, event_type, event_version,
        actor_type, actor_id, app_id, env_id, request_id, idempotency_key, payload, old, new)
    VALUES ($1, (SELECT coalesce(max(event_id), 0) + 1 FROM events WHERE org_id = $1), 'env', $2 || '.' || $3, $4,
        'env.scale_set', 1, 'user', $5, $2, $3, $6, $7, $8::text::jsonb, $9::text::jsonb, $10::text::jsonb)";

const REMEMBER: &str = "INSERT INTO idempotency_keys
    VALUES ($1, $2, $3, sha256(convert_to($4, 'UTF8')), $5, now() + interval '24 hours')
    ON CONFLICT (org_id, actor_id, idempotency_key) DO UPDATE
    SET request_hash = excluded.request_hash, answer = excluded.answer, expires_at = excluded.expires_at";

pub struct Statements {
    lock: Statement,
    known: Statement,
    env: Statement,
    limits: Statement,
    refused: Statement,
    use_more: Statement,
    change: Statement,
    tell: Statement,
    remember: Statement,
}

/// A status, and what it is answered with.
type Answer = (i32, String);

fn problem(status: i32, code: &str) -> Answer {
    (status, json!({"code": code, "status": status}).to_string())
}

/// What a scale command comes to.
#[derive(Default)]
struct Change {
    /// Instances, memory and cpu: what is asked for, and what usage changes by.
    asked: [i64; 3],
    more: [i64; 3],
    old_scales: Vec<Value>,
    new_scales: Vec<Value>,
    wanted: Map<String, Value>,
}

impl Change {
    fn of(asked: &Scale<'_>, processes: Map<String, Value>, runs: &Value) -> Result<Change, Answer> {
        let mut change = Change { wanted: processes, ..Change::default() };
        for (name, count) in asked.types.iter().zip(&asked.counts) {
            let process = change.wanted.get_mut(name).ok_or_else(|| problem(400, "invalid_argument"))?;
            let runs = &runs[name.as_str()];
            if *count > 1 && runs[3] == true {
                return Err(problem(409, "volume_replica_limit"));
            }
            let of = |value: &Value| value.as_i64().unwrap_or(0);
            let before = of(&process["desired"]);
            let unit = [1, of(&process["memory_bytes"]), of(&process["cpu_milli"])];
            for (at, unit) in unit.into_iter().enumerate() {
                let runs = of(&runs[at]);
                let grown = (count * unit).max(runs) - (before * unit).max(runs);
                change.more[at] += grown;
                change.asked[at] += grown.max(0);
            }
            change.old_scales.push(json!({"process_type": name, "desired": before}));
            change.new_scales.push(json!({"process_type": name, "desired": count}));
            process["desired"] = json!(count);
        }
        Ok(change)
    }

    /// What is too much, with these usages and limits.
    fn violations(&self, limits: &[Row]) -> Result<Vec<Value>, Error> {
        let mut violations = Vec::new();
        for ((dimension, row), asked) in DIMENSIONS.iter().zip(limits).zip(self.asked) {
            let (usage, limit): (i64, Option<i64>) = (row.try_get(0)?, row.try_get(1)?);
            if asked > 0 && limit.is_some_and(|limit| usage + asked > limit) {
                violations.push(json!({
                    "dimension": dimension, "limit": limit, "current_usage": usage, "requested_delta": asked,
                }));
            }
        }
        Ok(violations)
    }
}

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_default()
}

impl Statements {
    pub async fn prepare(client: &Client) -> Result<Statements, Error> {
        Ok(Statements {
            lock: client.prepare(LOCK).await?,
            known: client.prepare(KNOWN).await?,
            env: client.prepare(ENV).await?,
            limits: client.prepare(LIMITS).await?,
            refused: client.prepare(REFUSED).await?,
            use_more: client.prepare(USE).await?,
            change: client.prepare(CHANGE).await?,
            tell: client.prepare(TELL).await?,
            remember: client.prepare(REMEMBER).await?,
        })
    }

    /// Carries a command out in one transaction.
    pub async fn carry_out(&self, client: &Client, asked: &Scale<'_>) -> Result<Answer, Error> {
        // As drivers do that begin a transaction with its first statement: both are sent at once.
        let of: &[&(dyn ToSql + Sync)] = &[&asked.org];
        let (begun, org) = tokio::join!(client.batch_execute("BEGIN"), client.query_opt(&self.lock, of));
        let answer = match begun.and(org) {
            Ok(Some(org)) => self.locked(client, asked, org.try_get(0)?).await,
            Ok(None) => Ok(problem(404, "not_found")),
            Err(error) => Err(error),
        };
        client.batch_execute(if answer.is_ok() { "COMMIT" } else { "ROLLBACK" }).await?;
        answer
    }

    async fn locked(&self, client: &Client, asked: &Scale<'_>, tier: &str) -> Result<Answer, Error> {
        let Scale { org, app, env, types, expected, actor, request, key, body, .. } = asked;
        if let Some(key) = key
            && let Some(known) = client.query_opt(&self.known, &[org, actor, key, body]).await?
        {
            let is_same: bool = known.try_get(0)?;
            return Ok(if is_same { (200, known.try_get(1)?) } else { problem(409, "idempotency_key_reuse") });
        }
        let Some(stored) = client.query_opt(&self.env, &[org, app, env, types]).await? else {
            return Ok(problem(404, "not_found"));
        };
        let version: i64 = stored.try_get(0)?;
        if expected.is_some_and(|expected| expected != version) {
            return Ok(problem(409, "version_conflict"));
        }
        let processes = parsed(stored.try_get(1)?);
        let runs = parsed(stored.try_get(3)?);
        let before = processes.as_object().cloned().unwrap_or_default();
        let change = match Change::of(asked, before, &runs) {
            Ok(change) => change,
            Err(answer) => return Ok(answer),
        };
        if change.asked != [0; 3] {
            let limits = client.query(&self.limits, &[org, &tier, &DIMENSIONS.as_slice()]).await?;
            let violations = change.violations(&limits)?;
            if let Some(first) = violations.first() {
                let told = json!(violations).to_string();
                client.execute(&self.refused, &[org, actor, request, &told]).await?;
                let mut details = first.clone();
                details["violations"] = json!(violations);
                let body = json!({"code": "quota_exceeded", "status": 409, "request_id": request, "details": details});
                return Ok((409, body.to_string()));
            }
        }
        if change.more != [0; 3] {
            client.execute(&self.use_more, &[org, &DIMENSIONS.as_slice(), &change.more.as_slice()]).await?;
        }
        let old = json!({"app": app, "env": env, "version": version, "processes": processes});
        let (mut new, mut version) = (old.clone(), version);
        let wanted = Value::Object(change.wanted);
        if wanted != processes {
            version += 1;
            (new["version"], new["processes"]) = (json!(version), wanted);
            client.execute(&self.change, &[org, app, env, &version, &new["processes"].to_string()]).await?;
            let payload = json!({"old_scales": change.old_scales, "scales": change.new_scales}).to_string();
            let (old, new) = (old.to_string(), new.to_string());
            client.execute(&self.tell, &[org, app, env, &version, actor, request, key, &payload, &old, &new]).await?;
        }
        new["id"] = json!(format!("{app}.{env}"));
        new["created_at"] = parsed(stored.try_get(2)?);
        let answer = new.to_string();
        if let Some(key) = key {
            client.execute(&self.remember, &[org, actor, key, body, &answer]).await?;
        }
        Ok((200, answer))
    }
}
