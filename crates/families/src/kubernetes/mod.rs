//! Kubernetes ResourceQuota and what grew around it.

use kinds::field_error::FieldError;
use rules::{Compiled, GroupResource};
use serde_json::Value;

use crate::family::{Balances, Denial, Family, PolicyObject, Projected};

#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// With `--disable-admission ResourceQuota`: usage is still counted and shown, nothing is refused.
    pub observe_only: bool,
}

pub struct Kubernetes {
    #[allow(dead_code)]
    settings: Settings,
}

impl Kubernetes {
    pub fn new(settings: Settings) -> Self {
        Self { settings }
    }
}

impl Family for Kubernetes {
    fn name(&self) -> &'static str {
        "kubernetes"
    }

    fn policies(&self) -> Vec<GroupResource> {
        vec![]
    }

    fn compile(&self, _policy: &PolicyObject<'_>) -> Result<Compiled, Vec<FieldError>> {
        Err(vec![])
    }

    fn project(&self, _resource: &GroupResource, _object: &mut Value, _balances: &dyn Balances) -> Projected {
        Projected::Unchanged
    }

    fn words(&self, denial: &Denial) -> String {
        format!("exceeded quota: {}", denial.name)
    }
}
