//! The file that lets kubectl in. Certificates are embedded, so it can be copied to another machine as it is.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::{ADMIN_USER, Pki};

/// One cluster, one user, one context.
#[derive(Clone, Debug)]
pub struct Kubeconfig<'a> {
    pub server: &'a str,
    pub authority_pem: &'a str,
    pub user: &'a str,
    pub credential: Credential<'a>,
}

#[derive(Clone, Debug)]
pub enum Credential<'a> {
    Certificate { certificate_pem: &'a str, key_pem: &'a str },
    Token(&'a str),
}

pub fn admin_kubeconfig(pki: &Pki, server: &str) -> String {
    Kubeconfig {
        server,
        authority_pem: &pki.authority.certificate,
        user: ADMIN_USER,
        credential: Credential::Certificate { certificate_pem: &pki.admin.certificate, key_pem: &pki.admin.key },
    }
    .to_yaml()
}

impl Kubeconfig<'_> {
    pub fn to_yaml(&self) -> String {
        let Kubeconfig { server, authority_pem, user, credential } = self;
        let authority = STANDARD.encode(authority_pem);
        let credential = match credential {
            Credential::Certificate { certificate_pem, key_pem } => format!(
                "client-certificate-data: {}\n    client-key-data: {}",
                STANDARD.encode(certificate_pem),
                STANDARD.encode(key_pem)
            ),
            Credential::Token(token) => format!("token: {token}"),
        };
        format!(
            "apiVersion: v1\nkind: Config\nclusters:\n- name: bursar\n  cluster:\n    server: {server}\n    \
             certificate-authority-data: {authority}\nusers:\n- name: {user}\n  user:\n    {credential}\ncontexts:\n\
             - name: bursar\n  context:\n    cluster: bursar\n    user: {user}\ncurrent-context: bursar\n"
        )
    }
}
