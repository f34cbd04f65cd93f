//! Where a webhook is: an address of its own, or a Service whose endpoints are known.

use rules::GroupResource;
use serde_json::Value;

use crate::core::{Cache, ObjectKey};

const HTTPS_PORT: u16 = 443;
const SLICE_OF: &str = "kubernetes.io/service-name";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Target {
    Url {
        host: String,
        port: u16,
        path: String,
        text: String,
    },
    Service {
        namespace: String,
        name: String,
        port: u16,
        path: String,
    },
    /// A webhook whose clientConfig could not be read; it is never called.
    Nowhere,
}

impl Target {
    /// Reads a `clientConfig`. `Err` says what is wrong with it, in Kubernetes' words.
    pub fn read(config: &Value) -> Result<Target, String> {
        if let Some(url) = config["url"].as_str() {
            return Target::read_url(url);
        }
        let service = &config["service"];
        let text = |field: &str| service[field].as_str().unwrap_or_default().to_owned();
        let (namespace, name, path) = (text("namespace"), text("name"), text("path"));
        if namespace.is_empty() || name.is_empty() {
            return Err("service namespace and name are required".into());
        }
        let port = match service["port"].as_u64() {
            None => HTTPS_PORT,
            Some(port) => match u16::try_from(port) {
                Ok(port) if port > 0 => port,
                _ => return Err("port is not valid: must be between 1 and 65535, inclusive".into()),
            },
        };
        let path = if path.starts_with('/') { path } else { format!("/{path}") };
        let target = Target::Service { namespace, name, port, path };
        target.url().parse::<http::Uri>().map_err(|error| error.to_string())?;
        Ok(target)
    }

    fn read_url(text: &str) -> Result<Target, String> {
        let form = "desired format: https://host[:port]/path";
        let url: http::Uri = text.parse().map_err(|error| format!("url must be a valid URL: {error}; {form}"))?;
        if url.scheme_str() != Some("https") {
            return Err(format!("'https' is the only allowed URL scheme; {form}"));
        }
        let host = url.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        if host.is_empty() {
            return Err(format!("host must be specified; {form}"));
        }
        if url.authority().is_some_and(|authority| authority.as_str().contains('@')) {
            return Err("user information is not permitted in the URL".into());
        }
        if url.query().is_some() {
            return Err("query parameters are not permitted in the URL".into());
        }
        if text.contains('#') {
            return Err("fragments are not permitted in the URL".into());
        }
        let port = url.port_u16().unwrap_or(HTTPS_PORT);
        Ok(Target::Url { host, port, path: url.path().to_owned(), text: text.to_owned() })
    }

    /// The address as it is asked, without a query.
    pub fn url(&self) -> String {
        match self {
            Target::Url { text, path, .. } if text.ends_with(path.as_str()) => text.clone(),
            Target::Url { text, path, .. } => format!("{text}{path}"),
            Target::Service { namespace, name, port, path } => format!("https://{name}.{namespace}.svc:{port}{path}"),
            Target::Nowhere => String::new(),
        }
    }

    /// Whom the certificate has to be for.
    pub fn server_name(&self) -> String {
        match self {
            Target::Url { host, .. } => host.clone(),
            Target::Service { namespace, name, .. } => format!("{name}.{namespace}.svc"),
            Target::Nowhere => String::new(),
        }
    }

    /// Host and port to connect to. There is no cluster network here: a Service is reached through an endpoint that
    /// somebody wrote down, or through the outside name it stands for.
    pub fn address(&self, cache: &Cache) -> Result<(String, u16), String> {
        match self {
            Target::Url { host, port, .. } => Ok((host.clone(), *port)),
            Target::Service { namespace, name, port, .. } => service_address(cache, namespace, name, *port),
            Target::Nowhere => Err("the webhook has no address".into()),
        }
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
