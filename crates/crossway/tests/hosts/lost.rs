//! Agents and controllers that are killed.

use super::*;

fn agents(place: &Place) -> Vec<i32> {
    place.processes(|line| line.trim_end().ends_with("crossway agent"))
}

fn parent(pid: i32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit(')').next()?.split_whitespace().nth(1)?.parse().ok()
}

fn start_long(place: &Place, hosts: &str) -> Child {
    let mut command = place.command(&["measure", "plan.toml", "--hosts", hosts]);
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

#[test]
fn a_killed_agent_fails_its_trial_and_the_next_has_another() {
    let place = Place::new(LONG);
    let mut child = start_long(&place, "env,nice");
    place.await_records(1);
    // A process that an agent is starting looks like the agent for a moment, and is not the controller's child.
    let is_agent = |pid: &i32| parent(*pid) == Some(child.id());
    let mut agent = None;
    await_that("an agent", || {
        agent = agents(&place).into_iter().find(is_agent);
        agent.is_some()
    });
    signal(agent.unwrap(), "-KILL");
    assert_eq!(child.wait().unwrap().code(), Some(1), "a trial failed");
    let records = place.records();
    assert_eq!(records.len(), 9);
    let failed: Vec<_> = records.iter().filter(|r| r.status == Status::Failed).collect();
    assert_eq!(failed.len(), 1, "{failed:?}");
    let why = failed[0].reason.as_deref().unwrap();
    assert!(why.contains("agent was lost") && why.contains("was killed by signal 9"), "{why}");
    assert!(why.contains("host 'env'") || why.contains("host 'nice'"), "{why}");
    assert_eq!(place.leftovers(), Vec::<String>::new());
}

#[test]
fn a_host_whose_agents_die_three_times_in_a_row_is_given_up() {
    let place = Place::new(LONG);
    let mut child = start_long(&place, "env,nice");
    place.await_records(1);
    let mut status = None;
    await_that("the end of the run", || {
        for agent in agents(&place) {
            // It may have exited in the meantime.
            let _ = Command::new("kill").args(["-KILL", &agent.to_string()]).output();
        }
        status = child.try_wait().unwrap();
        status.is_some()
    });
    assert_eq!(status.unwrap().code(), Some(1));
    let records = place.records();
    let given_up = |r: &&Record| {
        r.status == Status::Skipped
            && r.reason.as_deref().unwrap().starts_with("3 agents in a row were lost")
    };
    assert!(records.iter().any(|r| given_up(&r)), "{records:?}");
    assert_eq!(place.leftovers(), Vec::<String>::new());
}

#[test]
fn a_killed_controller_leaves_no_agent_and_no_role() {
    let place = Place::new(LONG);
    let mut child = start_long(&place, "env,nice");
    place.await_records(1);
    // A process that an agent is starting looks like the agent for a moment.
    await_that("two agents", || agents(&place).len() == 2);
    child.kill().unwrap();
    child.wait().unwrap();
    await_nothing_left(&place);
}
