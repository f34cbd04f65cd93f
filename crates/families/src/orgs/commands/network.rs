//! Routes, and an environment's own IPv4 address.

use kinds::fields::text;
use serde_json::{Value, json};

use super::super::names::*;
use super::Given;
use super::body::Body;
use super::problem::Problem;
use super::work::{Asking, Done, Outcome, Stored};

pub fn create_route(given: &Given<'_>, asking: &mut Asking<'_>) -> Result<Outcome, Problem> {
    let known = ["hostname", "listen_port", "target_port", "process_type", "ipv4_required"];
    let body = Body::of(given.body, &known)?;
    let hostname = match body.text("hostname")? {
        None | Some("") => String::new(),
        Some(text) => normal_hostname(text)?,
    };
    let port = body.whole("listen_port", 1, 65_535)?;
    let port = match port {
        Some(port) => port,
        None if !hostname.is_empty() => 443,
        None => return Err(Problem::invalid("listen_port", "a route without a hostname is raw TCP: say which port")),
    };
    let target = body.whole("target_port", 1, 65_535)?.unwrap_or(8080);
    let process_type = body.text("process_type")?.unwrap_or("web");
    super::body::check_name("process_type", process_type)?;
    let ipv4_required = body.flag("ipv4_required")?.unwrap_or(false);
    let name = env_name(given.name("app"), given.name("env"));
    let env = asking.load(ENVS, &name)?;
    if ipv4_required && !has_ipv4(&env) {
        return Err(no_ipv4());
    }
    if !hostname.is_empty() && asking.find(HOSTNAMES, &hostname).is_some() {
        return Err(in_use(&hostname));
    }
    if hostname.is_empty() && is_bound(asking, &name, port) {
        return Err(port_in_use(&json!(port)));
    }
    let route = asking.new_id("r");
    let spec = json!({
        "app": given.name("app"), "env": given.name("env"), "hostname": hostname, "listen_port": port,
        "target_port": target, "process_type": process_type, "ipv4_required": ipv4_required,
    });
    let mut out = Outcome::new(Done::Created);
    let payload = json!({"hostname": hostname, "listen_port": port, "ipv4_required": ipv4_required});
    let row = asking.create(&mut out, ROUTES, &route, spec, "route.created", payload);
    if !hostname.is_empty() {
        asking.create_quietly(&mut out, HOSTNAMES, &hostname, json!({"org": asking.org, "route": route}));
    }
    Ok(out.showing(row))
}

/// A name that two routes have no two ways to write: lower case, without the dot at its end.
pub fn normal_hostname(text: &str) -> Result<String, Problem> {
    let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
    let label = |label: &str| {
        !label.is_empty()
            && label.len() <= 63
            && label.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    if !text.is_ascii() {
        return Err(Problem::invalid("hostname", "write it in ASCII: other letters as xn--…"));
    }
    if name.len() > 253 || !name.contains('.') || !name.split('.').all(label) {
        return Err(Problem::invalid("hostname", "it is no hostname: write app.example.com, without wildcards"));
    }
    Ok(name)
}

fn in_use(hostname: &str) -> Problem {
    Problem::conflict("hostname_in_use", format!("another route has the hostname {hostname:?}"))
}

pub fn no_ipv4() -> Problem {
    let why = "the route requires IPv4, and its environment has none: enable the IPv4 add-on first";
    Problem::conflict("ipv4_not_enabled", why)
}

pub fn port_in_use(port: &Value) -> Problem {
    Problem::conflict("port_in_use", format!("another raw TCP route of this environment has port {port}"))
}

fn has_ipv4(env: &Stored) -> bool {
    env.spec().pointer("/ipv4/enabled") == Some(&Value::Bool(true))
}

fn is_bound(asking: &Asking<'_>, env: &str, port: i64) -> bool {
    asking.list(ROUTES).iter().any(|route| {
        let spec = route.spec();
        env_name(text(spec, &["app"]), text(spec, &["env"])) == env
            && text(spec, &["hostname"]).is_empty()
            && spec["listen_port"] == port
    })
}

/// A route of the environment that the path names.
fn load_route(given: &Given<'_>, asking: &Asking<'_>) -> Result<Stored, Problem> {
    let stored = asking.load_to_change(ROUTES, given.name("route"))?;
    let of = |field: &str| text(stored.spec(), &[field]).to_owned();
    if of("app") == given.name("app") && of("env") == given.name("env") {
        return Ok(stored);
    }
    Err(Problem::not_found("route", given.name("route")))
}

pub fn update_route(given: &Given<'_>, asking: &mut Asking<'_>) -> Result<Outcome, Problem> {
    let body = Body::of(given.body, &["ipv4_required", "target_port", "process_type"])?;
    let stored = load_route(given, asking)?;
    let mut spec = stored.spec().clone();
    if let Some(required) = body.flag("ipv4_required")? {
        if required && !has_ipv4(&asking.load(ENVS, &env_name(given.name("app"), given.name("env")))?) {
            return Err(no_ipv4());
        }
        spec["ipv4_required"] = json!(required);
    }
    if let Some(port) = body.whole("target_port", 1, 65_535)? {
        spec["target_port"] = json!(port);
    }
    if let Some(name) = body.text("process_type")? {
        super::body::check_name("process_type", name)?;
        spec["process_type"] = json!(name);
    }
    if spec == *stored.spec() {
        return Ok(Outcome::as_it_was(&stored));
    }
    let payload = json!({"ipv4_required": spec["ipv4_required"], "target_port": spec["target_port"]});
    let mut out = Outcome::new(Done::Changed);
    let row = asking.change(&mut out, &stored, spec, &[("route.updated", payload)]);
    Ok(out.showing(row))
}

/// The hostname is free as soon as the route is gone.
pub fn delete_route(given: &Given<'_>, asking: &mut Asking<'_>) -> Result<Outcome, Problem> {
    let stored = load_route(given, asking)?;
    let mut out = Outcome::new(Done::Deleted);
    let payload = json!({"hostname": stored.spec()["hostname"], "listen_port": stored.spec()["listen_port"]});
    asking.delete(&mut out, &stored, "route.deleted", payload);
    Ok(out)
}

pub fn set_ipv4(given: &Given<'_>, asking: &mut Asking<'_>, enabled: bool) -> Result<Outcome, Problem> {
    Body::of(given.body, &[])?;
    let name = env_name(given.name("app"), given.name("env"));
    let stored = asking.load_to_change(ENVS, &name)?;
    if has_ipv4(&stored) == enabled {
        return Ok(Outcome::as_it_was(&stored));
    }
    if !enabled {
        let requiring = asking.list(ROUTES).into_iter().filter(|route| {
            let spec = route.spec();
            env_name(text(spec, &["app"]), text(spec, &["env"])) == name && spec["ipv4_required"] == true
        });
        if let Some(route) = requiring.into_iter().next() {
            let why = format!("route {:?} requires it", route.name);
            return Err(Problem::conflict("routes_require_ipv4", why));
        }
    }
    let mut spec = stored.spec().clone();
    spec["ipv4"] = match enabled {
        true => json!({"enabled": true, "allocation": asking.new_id("ip")}),
        false => json!({"enabled": false}),
    };
    let event = if enabled { "env.ipv4_addon_enabled" } else { "env.ipv4_addon_disabled" };
    let payload = spec["ipv4"].clone();
    let mut out = Outcome::new(Done::Changed);
    let row = asking.change(&mut out, &stored, spec, &[(event, payload)]);
    Ok(out.showing(row))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hostname_is_written_one_way() {
        for (text, name) in
            [("App.Example.COM.", "app.example.com"), ("xn--bcher-kva.example", "xn--bcher-kva.example")]
        {
            assert_eq!(normal_hostname(text).unwrap(), name);
        }
        let long = format!("{}.example", "a".repeat(64));
        for wrong in ["", ".", "localhost", "*.example.com", "a..b", "-a.b", "bücher.example", "a b.c", &long] {
            assert!(normal_hostname(wrong).is_err(), "{wrong}");
        }
    }
}
