//! Where a webhook is reached: at an address of its own, or at a Service whose endpoints are known.

use kinds::strategies::webhooks::Target;
use rules::GroupResource;
use serde_json::Value;

use crate::core::{Cache, ObjectKey};

const SLICE_OF: &str = "kubernetes.io/service-name";

/// Host and port to connect to. There is no cluster network here: a Service is reached through an endpoint that
/// somebody wrote down, or through the outside name it stands for.
pub(super) fn address(target: &Target, cache: &Cache) -> Result<(String, u16), String> {
    match target {
        Target::Url { host, port, .. } => Ok((host.clone(), *port)),
        Target::Service { namespace, name, port, .. } => service_address(cache, namespace, name, *port),
        Target::Nowhere => Err("the webhook has no address".into()),
    }
}

fn service_address(cache: &Cache, namespace: &str, name: &str, port: u16) -> Result<(String, u16), String> {
    let get = |resource: &str| {
        cache.get(&ObjectKey::new(GroupResource::core(resource), namespace, name)).map(|object| object.value())
    };
    let service = get("services").ok_or_else(|| format!("service {name:?} not found"))?;
    let spec = &service["spec"];
    if spec["type"] == "ExternalName" {
        return Ok((spec["externalName"].as_str().unwrap_or_default().to_owned(), port));
    }
    let ports = spec["ports"].as_array().map_or(&[][..], Vec::as_slice);
    let found = ports.iter().find(|known| known["port"].as_u64() == Some(u64::from(port)));
    let known = found.ok_or_else(|| format!("no service port {port} found for service {name:?}"))?;
    let port_name = known["name"].as_str().unwrap_or_default();
    let slices = cache.list(&GroupResource::new("discovery.k8s.io", "endpointslices"));
    let slices = slices.range(namespace, None).filter(|slice| slice.label(SLICE_OF) == Some(name));
    let from_slices = slices.map(|slice| slice.value()).find_map(|slice| slice_address(&slice, port_name));
    let address = from_slices.or_else(|| {
        let endpoints = get("endpoints")?;
        endpoints["subsets"].as_array().into_iter().flatten().find_map(|subset| {
            let address = subset["addresses"][0]["ip"].as_str()?;
            Some((address.to_owned(), named_port(&subset["ports"], port_name)?))
        })
    });
    address.ok_or_else(|| format!("no endpoints available for service {name:?}"))
}

fn slice_address(slice: &Value, port_name: &str) -> Option<(String, u16)> {
    let endpoints = slice["endpoints"].as_array().into_iter().flatten();
    // Readiness that nobody stated counts as ready, as in Kubernetes.
    let mut ready = endpoints.filter(|endpoint| endpoint["conditions"]["ready"].as_bool() != Some(false));
    let address = ready.find_map(|endpoint| endpoint["addresses"][0].as_str())?;
    Some((address.to_owned(), named_port(&slice["ports"], port_name)?))
}

fn named_port(ports: &Value, name: &str) -> Option<u16> {
    let mut ports = ports.as_array().into_iter().flatten();
    let port = ports.find(|port| port["name"].as_str().unwrap_or_default() == name)?;
    u16::try_from(port["port"].as_u64()?).ok()
}
