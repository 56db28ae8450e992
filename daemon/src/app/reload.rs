//! SIGHUP: the new configuration is checked whole, then the difference is applied; on any refusal the old one stays.

use std::time::SystemTime;

use crate::config::{self, Config};

use super::{Node, signals};

impl Node {
    /// Reads the configuration file again and applies what differs.
    pub async fn reload(&mut self) {
        // Before that the service manager waits for READY=1, which the end of a reload would send too early.
        let announced = self.readiness.is_ready();
        if announced {
            signals::reloading();
        }
        let outcome = self.try_reload().await;
        let status = match &outcome {
            Ok(changes) if changes.is_empty() => "configuration read again: no change".to_owned(),
            Ok(changes) => format!("configuration applied: {}", changes.join("; ")),
            Err(reason) => format!("configuration refused, the old one stays: {reason}"),
        };
        match &outcome {
            Ok(_) => tracing::info!("{status}"),
            Err(_) => tracing::error!("{status}"),
        }
        metrics::gauge!("isthmus_config_last_reload_successful").set(f64::from(u8::from(outcome.is_ok())));
        self.state.send_modify(|state| state.reloaded(outcome.err(), SystemTime::now()));
        if announced {
            signals::reloaded(&status);
        }
    }

    async fn try_reload(&mut self) -> Result<Vec<String>, String> {
        let new = config::load(&self.config.path).map_err(|error| error.one_line())?;
        if let Some(what) = needs_restart(&self.config, &new) {
            return Err(format!("{what} cannot change while running; restart the daemon to apply it"));
        }
        super::check(&new).map_err(|error| error.to_string())?;
        match self.apply(&new).await {
            Ok(changes) => {
                super::warn(&new);
                self.config = new;
                Ok(changes)
            }
            Err(reason) => Err(self.go_back(reason).await),
        }
    }

    /// What was applied before a subsystem refused is taken back: a configuration holds whole or not at all. Identity comes last in
    /// [`Node::apply`], so it has nothing to take back.
    async fn go_back(&self, reason: String) -> String {
        match self.apply_network(&self.config).await {
            Ok(_) => reason,
            Err(back) => format!("{reason}; going back failed too, restart the daemon: {back}"),
        }
    }

    /// Each subsystem validates its section and applies the difference, or refuses and changes nothing. The files of identity are the
    /// likeliest to be refused, and its streams cannot be called back: they are checked first and applied last.
    async fn apply(&self, new: &Config) -> Result<Vec<String>, String> {
        let mut changes = self.apply_network(new).await?;
        if let Some(handle) = &self.parts.identity {
            // What can be refused comes first; what is prepared and not installed goes away by itself.
            let prepared = handle.federation().prepare(new.federation.as_ref()).await;
            let prepared = prepared.map_err(|error| error.to_string())?;
            let (issuer, workload_api) = (new.issuer.clone(), new.workload_api.clone());
            let applied = handle.apply(new.identity.clone(), issuer, workload_api).await;
            changes.extend(applied.map_err(|error| error.to_string())?);
            changes.extend(handle.federation().install(prepared));
        }
        Ok(changes)
    }

    async fn apply_network(&self, new: &Config) -> Result<Vec<String>, String> {
        let mut changes = Vec::new();
        if let (Some(handle), Some(section)) = (&self.parts.tunnel, new.tunnel.clone()) {
            changes.extend(handle.apply(section).await.map_err(|error| error.to_string())?);
        }
        if let (Some(handle), Some(section)) = (&self.parts.fib, new.fib.clone()) {
            if self.config.fib.as_ref() != Some(&section) {
                changes.push("fib: settings changed".into());
            }
            handle.apply(section).await.map_err(|error| error.to_string())?;
        }
        if let (Some(handle), Some(section)) = (&self.parts.bgp, new.bgp.clone()) {
            changes.extend(handle.apply(section).await.map_err(|error| error.to_string())?);
        }
        if let Some(handle) = &self.parts.bfd {
            let wanted = super::leave::watched(new, self.parts.service.stage());
            changes.extend(handle.apply(wanted).await.map_err(|error| error.to_string())?);
        }
        Ok(changes)
    }
}

/// What differs that only a restart can change; `None`: all of it can be applied.
fn needs_restart(old: &Config, new: &Config) -> Option<&'static str> {
    let sections = [
        (old.tunnel.is_some() != new.tunnel.is_some(), "the presence of [tunnel]"),
        (old.bgp.is_some() != new.bgp.is_some(), "the presence of [bgp]"),
        (old.fib.is_some() != new.fib.is_some(), "the presence of [fib]"),
        (old.identity.is_some() != new.identity.is_some(), "the presence of [identity]"),
        (old.node != new.node, "[node]"),
        (old.api != new.api, "[api]"),
        (old.metrics != new.metrics, "[metrics]"),
    ];
    let of_tunnel = old.tunnel.as_ref().zip(new.tunnel.as_ref()).map(|(old, new)| {
        [
            (old.interface != new.interface, "[tunnel] interface"),
            (old.listen != new.listen, "[tunnel] listen"),
            (old.private_key_file != new.private_key_file, "[tunnel] private_key_file"),
            (old.mtu != new.mtu, "[tunnel] mtu"),
        ]
    });
    let of_bgp = old.bgp.as_ref().zip(new.bgp.as_ref()).map(|(old, new)| {
        [
            (old.asn != new.asn, "[bgp] asn"),
            (old.router_id != new.router_id, "[bgp] router_id"),
            (old.listen != new.listen, "[bgp] listen"),
        ]
    });
    let all = sections.into_iter().chain(of_tunnel.into_iter().flatten()).chain(of_bgp.into_iter().flatten());
    all.into_iter().find_map(|(differs, what)| differs.then_some(what))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn config(text: &str) -> Config {
        config::parse(Path::new("/nonexistent/c.toml"), text).unwrap()
    }

    #[test]
    fn what_needs_a_restart_is_named() {
        let bgp = "[bgp]\nrouter_id = \"10.0.0.1\"\n";
        let table = [
            ("[tunnel]\n", "", Some("the presence of [tunnel]")),
            ("[tunnel]\n", "[tunnel]\nlisten = 1\n", Some("[tunnel] listen")),
            ("[tunnel]\n", "[tunnel]\nmtu = 1300\n", Some("[tunnel] mtu")),
            ("[tunnel]\n", "[tunnel]\naddresses = [\"10.0.0.1/24\"]\n", None),
            (&format!("{bgp}asn = 1"), &format!("{bgp}asn = 2"), Some("[bgp] asn")),
            (&format!("{bgp}asn = 1"), &format!("{bgp}asn = 1\nannounce = [\"10.0.0.0/8\"]"), None),
            ("[api]\nsocket = \"a\"", "[api]\nsocket = \"b\"", Some("[api]")),
        ];
        for (old, new, expected) in table {
            assert_eq!(needs_restart(&config(old), &config(new)), expected, "{old} -> {new}");
        }
    }
}
