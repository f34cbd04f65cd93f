//! Cluster addresses and node ports for Services, each given to one Service at a time.
//!
//! What is stored is known from the cache; what is about to be stored is held by a [`Reservation`] that its write keeps
//! until it was answered. A write that fails, a dry run, a client that goes away: dropping the reservation gives back
//! whatever did not become part of a stored Service.

mod pool;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use kinds::field_error::FieldError;
use parking_lot::Mutex;
use pool::{Pool, Refused};
use rules::GroupResource;
use serde_json::{Value, json};

use crate::core::{Cache, Event, EventKind, Object};

/// The addresses given to Services: 10.96.0.0/16, Kubernetes installers' usual choice. Nothing routes them here; they are
/// unique, which is what clients rely on.
const NETWORK: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 0);
const NETWORK_BITS: u32 = 16;
/// Kubernetes keeps this many addresses at the start for those who ask for one by name, and gives them out last.
const STATIC_ADDRESSES: u32 = 256;

const FIRST_PORT: u32 = 30_000;
const LAST_PORT: u32 = 32_767;
/// The same for node ports.
const STATIC_PORTS: u32 = 86;

/// A Service: namespace and name.
type Place = (Arc<str>, Arc<str>);

/// Why a Service got no addresses.
#[derive(Debug, PartialEq)]
pub enum AddressError {
    /// It asks for something it cannot have: 422.
    Invalid(Vec<FieldError>),
    /// There is nothing left: 500, as in Kubernetes.
    Exhausted(String),
}

/// Who has which address and port.
pub struct Addresses {
    state: Mutex<State>,
}

struct State {
    addresses: Pool,
    ports: Pool,
    /// What each stored Service has, so that a change can be compared without the Service's old form.
    stored: HashMap<Place, Taken>,
}

#[derive(Default, Clone, PartialEq, Eq)]
struct Taken {
    addresses: Vec<u32>,
    ports: Vec<u32>,
}

/// Addresses and ports held for a Service that is about to be written.
#[must_use = "what is reserved is given back when this is dropped"]
pub struct Reservation {
    owner: Arc<Addresses>,
    taken: Taken,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut state = self.owner.state.lock();
        self.taken.addresses.iter().for_each(|number| state.addresses.unreserve(*number));
        self.taken.ports.iter().for_each(|number| state.ports.unreserve(*number));
    }
}

impl Addresses {
    pub fn new() -> Arc<Addresses> {
        let first = u32::from(NETWORK);
        let last = first | (u32::MAX >> NETWORK_BITS);
        // Neither the network's own address nor its broadcast address is anybody's.
        let addresses = Pool::new(first + 1, last - 1, STATIC_ADDRESSES);
        let ports = Pool::new(FIRST_PORT, LAST_PORT, STATIC_PORTS);
        Arc::new(Addresses { state: Mutex::new(State { addresses, ports, stored: HashMap::new() }) })
    }

    /// Takes up every stored Service, then every change.
    pub fn follow(cache: &Cache) -> Arc<Addresses> {
        let addresses = Addresses::new();
        let services = GroupResource::core("services");
        for object in cache.list(&services).range("", None) {
            addresses.stored(object);
        }
        let following = Arc::clone(&addresses);
        cache.observe(move |event: &Event| {
            if event.object.key.resource != services {
                return;
            }
            match event.kind {
                EventKind::Added | EventKind::Modified => following.stored(&event.object),
                EventKind::Deleted => following.removed(&event.object),
            }
        });
        addresses
    }

    fn stored(&self, service: &Object) {
        self.store(place(service), Taken::of(&service.value()));
    }

    fn removed(&self, service: &Object) {
        self.store(place(service), Taken::default());
    }

    fn store(&self, place: Place, now: Taken) {
        let mut state = self.state.lock();
        let State { addresses, ports, stored } = &mut *state;
        let before = stored.remove(&place).unwrap_or_default();
        addresses.store(&place, &before.addresses, &now.addresses);
        ports.store(&place, &before.ports, &now.ports);
        if now != Taken::default() {
            stored.insert(place, now);
        }
    }

    /// Gives a Service that is about to be created or changed what its type needs and it does not have, and holds what it
    /// names itself. Nothing is held after an error.
    pub fn allocate(
        self: &Arc<Self>,
        namespace: &str,
        name: &str,
        service: &mut Value,
    ) -> Result<Reservation, AddressError> {
        let place: Place = (namespace.into(), name.into());
        let mut reservation = Reservation { owner: Arc::clone(self), taken: Taken::default() };
        let Some(spec) = service.get_mut("spec").filter(|spec| spec.is_object()) else { return Ok(reservation) };
        let wish = normalize(spec)?;
        // Held only in here: a reservation that is dropped on the way out locks again.
        let outcome = {
            let mut state = self.state.lock();
            let State { addresses, ports, .. } = &mut *state;
            let addressed = address(spec, wish, &place, addresses, &mut reservation.taken);
            addressed.and_then(|()| assign_ports(spec, &place, ports, &mut reservation.taken))
        };
        outcome.map(|()| reservation)
    }
}

/// Which address a Service wants.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Wish {
    None,
    Any,
    This(Ipv4Addr),
}

/// Makes `clusterIP` and `clusterIPs` say the same, and finds what this network cannot do.
fn normalize(spec: &mut Value) -> Result<Wish, AddressError> {
    let invalid = |error: FieldError| Err(AddressError::Invalid(vec![error]));
    let single = spec.get("clusterIP").and_then(Value::as_str).unwrap_or_default().to_owned();
    let many: Vec<String> = match spec.get("clusterIPs").and_then(Value::as_array) {
        Some(list) => list.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        None => Vec::new(),
    };
    if spec.get("type").and_then(Value::as_str) == Some("ExternalName") {
        if !single.is_empty() || !many.is_empty() {
            return invalid(FieldError::forbidden("spec.clusterIPs", "may not be set for ExternalName services"));
        }
        return Ok(Wish::None);
    }
    let families = spec.get("ipFamilies").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    if let Some(at) = families.iter().position(|family| family != "IPv4") {
        let path = format!("spec.ipFamilies[{at}]");
        return invalid(FieldError::invalid(path, families[at].clone(), "not configured on this cluster"));
    }
    let policy = spec.get("ipFamilyPolicy").and_then(Value::as_str).unwrap_or_default();
    if policy == "RequireDualStack" || many.len() > 1 {
        let detail = "this cluster is not configured for dual-stack services";
        return invalid(FieldError::invalid("spec.ipFamilyPolicy", policy, detail));
    }
    let wanted = match (single.as_str(), many.first().map(String::as_str)) {
        ("", None) => return Ok(Wish::Any),
        ("", Some(only)) => only.to_owned(),
        (single, Some(first)) if first != single => {
            return invalid(FieldError::invalid("spec.clusterIPs", json!(many), "first value must match `clusterIP`"));
        }
        (single, _) => single.to_owned(),
    };
    spec["clusterIP"] = json!(wanted);
    spec["clusterIPs"] = json!([wanted]);
    match wanted.parse() {
        _ if wanted == "None" => Ok(Wish::None),
        Ok(IpAddr::V4(address)) => Ok(Wish::This(address)),
        Ok(IpAddr::V6(_)) => {
            invalid(FieldError::invalid("spec.clusterIPs[0]", wanted, "IPv6 is not configured on this cluster"))
        }
        Err(_) => {
            let detail = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
            invalid(FieldError::invalid("spec.clusterIPs[0]", wanted, detail))
        }
    }
}

fn address(
    spec: &mut Value,
    wish: Wish,
    place: &Place,
    pool: &mut Pool,
    taken: &mut Taken,
) -> Result<(), AddressError> {
    match wish {
        Wish::None => Ok(()),
        Wish::Any => {
            let number = pool
                .next(place)
                .ok_or_else(|| AddressError::Exhausted("failed to allocate a serviceIP: range is full".into()))?;
            taken.addresses.push(number);
            let text = Ipv4Addr::from(number).to_string();
            spec["clusterIPs"] = json!([text]);
            spec["clusterIP"] = text.into();
            Ok(())
        }
        Wish::This(wanted) => {
            let why = match pool.reserve(u32::from(wanted), place) {
                Ok(()) => {
                    taken.addresses.push(u32::from(wanted));
                    return Ok(());
                }
                Err(Refused::Taken) => "provided IP is already allocated".to_owned(),
                Err(Refused::OutOfRange) => format!(
                    "the provided IP ({wanted}) is not in the valid range. The range of valid IPs is {NETWORK}/{NETWORK_BITS}"
                ),
            };
            let detail = format!("failed to allocate IP {wanted}: {why}");
            let error = FieldError::invalid("spec.clusterIPs", json!([wanted.to_string()]), detail);
            Err(AddressError::Invalid(vec![error]))
        }
    }
}

fn assign_ports(spec: &mut Value, place: &Place, pool: &mut Pool, taken: &mut Taken) -> Result<(), AddressError> {
    let kind = spec.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
    let gives = match kind.as_str() {
        "NodePort" => true,
        "LoadBalancer" => spec.get("allocateLoadBalancerNodePorts").and_then(Value::as_bool) != Some(false),
        _ => false,
    };
    let mut ports = spec.get("ports").and_then(Value::as_array).cloned().unwrap_or_default();
    // Ports of one number and different protocols share a node port, as in Kubernetes: it saves one.
    let mut by_port: HashMap<i64, u32> = HashMap::new();
    let number = |port: &Value| port.get("port").and_then(Value::as_i64).unwrap_or(0);
    // The node port that the first of those of one number names, whichever it is.
    let mut named: HashMap<i64, i64> = HashMap::new();
    for port in ports.iter().filter(|port| node_port(port) != 0) {
        named.entry(number(port)).or_insert_with(|| node_port(port));
    }
    for (at, entry) in ports.iter_mut().enumerate() {
        let given = node_port(entry);
        if given != 0 && matches!(kind.as_str(), "ClusterIP" | "ExternalName") {
            let detail = format!("may not be used when `type` is '{kind}'");
            let error = FieldError::forbidden(format!("spec.ports[{at}].nodePort"), detail);
            return Err(AddressError::Invalid(vec![error]));
        }
        if given == 0 && !gives {
            continue;
        }
        let port = number(entry);
        let known = by_port.get(&port).copied();
        if known.is_some_and(|known| i64::from(known) == given) {
            continue;
        }
        let wanted = if given != 0 { given } else { named.get(&port).copied().unwrap_or(0) };
        let number = match (known, wanted) {
            (Some(known), _) if given == 0 => known,
            (_, 0) => {
                let number = pool
                    .next(place)
                    .ok_or_else(|| AddressError::Exhausted("failed to allocate a nodePort: range is full".into()))?;
                taken.ports.push(number);
                number
            }
            (_, wanted) => reserve_port(pool, place, wanted, taken).map_err(|why| {
                let path = format!("spec.ports[{at}].nodePort");
                AddressError::Invalid(vec![FieldError::invalid(path, wanted, why)])
            })?,
        };
        by_port.entry(port).or_insert(number);
        entry["nodePort"] = number.into();
    }
    if !ports.is_empty() {
        spec["ports"] = Value::Array(ports);
    }
    health_check_port(spec, &kind, place, pool, taken)
}

/// A load balancer that keeps traffic on the node asks each node whether it has any business with the Service.
fn health_check_port(
    spec: &mut Value,
    kind: &str,
    place: &Place,
    pool: &mut Pool,
    taken: &mut Taken,
) -> Result<(), AddressError> {
    if kind != "LoadBalancer" || spec.get("externalTrafficPolicy").and_then(Value::as_str) != Some("Local") {
        return Ok(());
    }
    match spec.get("healthCheckNodePort").and_then(Value::as_i64).unwrap_or(0) {
        0 => {
            let full = "failed to allocate a HealthCheck NodePort : range is full";
            let number = pool.next(place).ok_or_else(|| AddressError::Exhausted(full.into()))?;
            taken.ports.push(number);
            spec["healthCheckNodePort"] = number.into();
            Ok(())
        }
        wanted => reserve_port(pool, place, wanted, taken).map(|_| ()).map_err(|why| {
            AddressError::Exhausted(format!("failed to allocate requested HealthCheck NodePort {wanted}: {why}"))
        }),
    }
}

fn reserve_port(pool: &mut Pool, place: &Place, wanted: i64, taken: &mut Taken) -> Result<u32, String> {
    let out_of_range =
        || format!("provided port is not in the valid range. The range of valid ports is {FIRST_PORT}-{LAST_PORT}");
    let number = u32::try_from(wanted).map_err(|_| out_of_range())?;
    // Another port of the same Service may have it.
    if taken.ports.contains(&number) {
        return Err("provided port is already allocated".into());
    }
    match pool.reserve(number, place) {
        Ok(()) => {
            taken.ports.push(number);
            Ok(number)
        }
        Err(Refused::Taken) => Err("provided port is already allocated".into()),
        Err(Refused::OutOfRange) => Err(out_of_range()),
    }
}

fn node_port(port: &Value) -> i64 {
    port.get("nodePort").and_then(Value::as_i64).unwrap_or(0)
}

fn place(service: &Object) -> Place {
    (service.key.namespace.clone(), service.key.name.clone())
}

impl Taken {
    fn of(service: &Value) -> Taken {
        let spec = &service["spec"];
        let addresses = [&spec["clusterIP"]].into_iter().chain(spec["clusterIPs"].as_array().into_iter().flatten());
        let addresses = addresses.filter_map(|text| text.as_str()?.parse::<Ipv4Addr>().ok()).map(u32::from);
        let ports = spec["ports"].as_array().into_iter().flatten().map(node_port);
        let ports = ports.chain(spec["healthCheckNodePort"].as_i64());
        let ports = ports.filter(|number| *number != 0).filter_map(|number| u32::try_from(number).ok());
        Taken { addresses: distinct(addresses), ports: distinct(ports) }
    }
}

fn distinct(numbers: impl Iterator<Item = u32>) -> Vec<u32> {
    let mut numbers: Vec<u32> = numbers.collect();
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}
