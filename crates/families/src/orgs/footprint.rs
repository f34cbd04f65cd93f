//! What instances take, exactly: how many, how much memory with what runs them, how many vCPUs.

use kinds::fields::given;
use quantity::Amount;
use serde_json::{Value, json};

use super::numbers;

/// The most that one instance may ask for.
pub const CPU_MAX: i64 = 64;
/// Sixteen tebibytes: no machine has more.
pub const MEMORY_BYTES_MAX: i64 = 16 << 40;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Footprint {
    pub instances: i64,
    pub memory_bytes: i64,
    pub cpu: Amount,
}

impl Footprint {
    pub const NONE: Footprint = Footprint { instances: 0, memory_bytes: 0, cpu: Amount::ZERO };

    /// One instance with these resources: `memory_bytes`, `vmm_overhead_bytes`, `cpu`.
    pub fn of_one(resources: &Value) -> Result<Footprint, String> {
        let whole = |field: &str| match given(resources, &[field]) {
            Some(value) => numbers::whole(value).map_err(|why| format!("{field}: {why}")),
            None => Err(format!("{field} is missing")),
        };
        let memory = whole("memory_bytes")?;
        let overhead = whole("vmm_overhead_bytes")?;
        let cpu = given(resources, &["cpu"]).ok_or("cpu is missing")?;
        let cpu = numbers::decimal(cpu).map_err(|why| format!("cpu: {why}"))?;
        let memory_bytes = memory.checked_add(overhead).ok_or("memory_bytes is too much")?;
        Ok(Footprint { instances: 1, memory_bytes, cpu })
    }

    /// What an object says it takes.
    pub fn read(value: &Value) -> Result<Footprint, String> {
        let whole = |field: &str| numbers::whole(value.get(field).unwrap_or(&Value::Null));
        let cpu = numbers::decimal(value.get("cpu").unwrap_or(&Value::Null))?;
        Ok(Footprint { instances: whole("instances")?, memory_bytes: whole("memory_bytes")?, cpu })
    }

    pub fn shown(self) -> Value {
        json!({"instances": self.instances, "memory_bytes": self.memory_bytes, "cpu": numbers::text(self.cpu)})
    }

    pub fn plus(self, other: Footprint) -> Option<Footprint> {
        Some(Footprint {
            instances: self.instances.checked_add(other.instances)?,
            memory_bytes: self.memory_bytes.checked_add(other.memory_bytes)?,
            cpu: self.cpu.checked_add(other.cpu)?,
        })
    }

    pub fn minus(self, other: Footprint) -> Option<Footprint> {
        Some(Footprint {
            instances: self.instances.checked_sub(other.instances)?,
            memory_bytes: self.memory_bytes.checked_sub(other.memory_bytes)?,
            cpu: self.cpu.checked_sub(other.cpu)?,
        })
    }

    pub fn times(self, count: i64) -> Option<Footprint> {
        Some(Footprint {
            instances: self.instances.checked_mul(count)?,
            memory_bytes: self.memory_bytes.checked_mul(count)?,
            cpu: self.cpu.checked_mul(count)?,
        })
    }

    /// The larger of both in each dimension.
    pub fn max(self, other: Footprint) -> Footprint {
        Footprint {
            instances: self.instances.max(other.instances),
            memory_bytes: self.memory_bytes.max(other.memory_bytes),
            cpu: self.cpu.max(other.cpu),
        }
    }

    /// In the order of [`super::Dimension::COMPUTE`].
    pub fn amounts(self) -> [Amount; 3] {
        [Amount::from_units(self.instances), Amount::from_units(self.memory_bytes), self.cpu]
    }
}
