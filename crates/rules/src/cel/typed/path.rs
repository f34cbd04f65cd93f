//! Where a value lies in a schema.

use std::cell::RefCell;
use std::rc::Rc;

/// Where a value lies in the schema: the variable, then fields, `@items`, `@keys`, `@values`.
///
/// Kubernetes keeps paths in Go slices, and two that grow from one may share the memory behind it: the later step then
/// replaces the earlier. That decides what a size is looked up by, so it is done the same way here.
#[derive(Clone, Default)]
pub(super) struct Path {
    steps: Rc<RefCell<Vec<Rc<str>>>>,
    length: usize,
    capacity: usize,
}

impl Path {
    pub fn of(name: &str) -> Path {
        Path::default().with(name)
    }

    pub fn with(&self, step: &str) -> Path {
        if self.length < self.capacity {
            let mut steps = self.steps.borrow_mut();
            if steps.len() > self.length {
                steps[self.length] = step.into();
            } else {
                steps.push(step.into());
            }
            drop(steps);
            return Path { length: self.length + 1, ..self.clone() };
        }
        let mut steps = self.steps.borrow()[..self.length].to_vec();
        steps.push(step.into());
        let capacity = (self.capacity * 2).max(1);
        Path { steps: Rc::new(RefCell::new(steps)), length: self.length + 1, capacity }
    }

    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    pub fn first_is(&self, name: &str) -> bool {
        !self.is_empty() && &*self.steps.borrow()[0] == name
    }

    pub fn steps(&self) -> Vec<Rc<str>> {
        self.steps.borrow()[..self.length].to_vec()
    }
}
