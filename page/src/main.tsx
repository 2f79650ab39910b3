// The page: what is around every view, and which view is shown.
import { render, type ComponentType } from "preact";
import { useEffect, useState } from "preact/hooks";
import { asOf, clockAhead, goToLogin, heardAt, problem, standing, tick, unlock } from "./live";
import { Help, isHelpOpen, listen } from "./keys";
import { Link, tellSeconds, tellTimes } from "./parts";
import { go, place, split, to } from "./route";
import { OverviewView } from "./views/overview";
import { QueueView } from "./views/queue";
import { JobView } from "./views/job";
import { QuotasView } from "./views/quotas";
import { ReservationsView } from "./views/reservations";
import { HealthView } from "./views/health";
import { MapView } from "./views/map";
import { NodeView } from "./views/node";
import { TimeView } from "./views/time";
import { UsageView } from "./views/usage";
import { WhatIfView } from "./views/whatif";
import { theme, THEMES } from "./theme";

interface View {
  name: string;
  title: string;
  show: ComponentType<{ parts: string[] }>;
  /** What it shows, if it is one of many. */
  tell?: (parts: string[]) => string;
  /** Its key after `g`, if it is in the list of views. */
  key?: string;
}

const KINDS: Record<string, string> = { pod: "Pod", podgroup: "PodGroup", reservation: "Reservation" };

const VIEWS: View[] = [
  { name: "", title: "Overview", show: OverviewView, key: "o" },
  { name: "queue", title: "Queue", show: QueueView, key: "q" },
  { name: "quotas", title: "Quotas", show: QuotasView, key: "u", tell: ([name]) => `Quota ${name}` },
  { name: "map", title: "Map", show: MapView, key: "m" },
  { name: "reservations", title: "Reservations", show: ReservationsView, key: "r" },
  { name: "time", title: "Time", show: TimeView, key: "t" },
  { name: "usage", title: "Usage", show: UsageView, key: "h" },
  { name: "whatif", title: "What if", show: WhatIfView, key: "w" },
  { name: "health", title: "Sick", show: HealthView, key: "s" },
  { name: "node", title: "Node", show: NodeView, tell: ([name]) => `Node ${name}` },
  { name: "unit", title: "Unit", show: JobView, tell: ([namespace, kind = "", name]) => `${KINDS[kind] ?? kind} ${namespace}/${name}` },
];

function NotThere() {
  return <p class="missing">There is no such view. <Link href={to("")}>Overview</Link></p>;
}

/** `/u/NAMESPACE/NAME` is short for a PodGroup, for links in events and alerts. */
function expand(): void {
  const [short, namespace, name] = split(place.value.path);
  if (short === "u" && namespace && name) go(to("unit", namespace, "podgroup", name), true);
}

function find(path: string): { view: View; parts: string[] } {
  const parts = split(path);
  const view = VIEWS.find((each) => each.name === (parts[0] ?? ""));
  return { view: view ?? { name: "none", title: "Not there", show: NotThere }, parts: parts.slice(1) };
}

function Page() {
  const { view, parts } = find(place.value.path);
  const title = parts.length ? (view.tell?.(parts) ?? parts.join("/")) : view.title;
  useEffect(() => {
    document.title = `${title} · koord`;
  }, [title]);
  const isLocked = standing.value === "locked";
  const isOld = standing.value === "silent" || problem.value !== "";
  const Show = view.show;
  return (
    <>
      <a class="skip" href="#content">Skip to the content</a>
      <header>
        <Link href={to("")} class="brand">koord</Link>
        <nav aria-label="Views">
          <ul>
            {VIEWS.filter((each) => each.key).map((each) => (
              <li key={each.name}>
                <a href={to(each.name)} aria-current={each === view ? "page" : undefined}
                  onClick={(event) => {
                    if (event.ctrlKey || event.metaKey || event.shiftKey) return;
                    event.preventDefault();
                    go(to(each.name));
                  }}>{each.title}</a>
              </li>
            ))}
          </ul>
        </nav>
        <Liveness />
        <Theme />
      </header>
      <main id="content" class={isOld ? "old" : ""}>
        {isLocked ? <Locked /> : (
          <>
            <h1 id="title" tabIndex={-1}>{title}</h1>
            <Show key={place.value.path} parts={parts} />
          </>
        )}
      </main>
      {isHelpOpen.value && <Help views={VIEWS} />}
    </>
  );
}

/** Whether what is shown is live; told to screen readers when it changes, not each second. */
function Liveness() {
  const seen = asOf.value;
  const age = seen ? (tick.value - clockAhead.value - Date.parse(seen.at)) / 1000 : 0;
  const state = problem.value ? "problem" : standing.value;
  const since = new Date(heardAt.value).toLocaleTimeString();
  const texts: Record<string, string> = {
    starting: "connecting",
    live: "live",
    silent: `not live since ${since}`,
    locked: "locked",
    problem: `not live: ${problem.value}`,
  };
  return (
    <div class={`liveness ${state}`}>
      {seen?.leader && <span class="leader" title="Who leads the operators">leader {seen.leader}{seen.term ? ` (${seen.term})` : ""}</span>}
      {seen && <time dateTime={seen.at} title={seen.at}>read {tellSeconds(age)} ago</time>}
      <span role="status">{texts[state]}</span>
    </div>
  );
}

function Theme() {
  return (
    <label class="theme">
      <span class="unseen">Colours</span>
      <select value={theme.value} onChange={(event) => { theme.value = event.currentTarget.value; }}>
        {THEMES.map((name) => <option key={name} value={name}>{name}</option>)}
      </select>
    </label>
  );
}

function Locked() {
  const [key, setKey] = useState("");
  const [refusal, setRefusal] = useState("");
  useEffect(() => {
    void goToLogin();
  }, []);
  const send = (event: Event) => {
    event.preventDefault();
    void unlock(key.trim()).then(setRefusal);
  };
  return (
    <form class="locked" onSubmit={send}>
      <h1 id="title" tabIndex={-1}>The page is locked</h1>
      <p>Open the address that <code>koord page</code> printed, or give the key that stands in it.</p>
      <label class="filter"><span>Key</span>
        <input type="password" autocomplete="off" value={key} onInput={(event) => setKey(event.currentTarget.value)} />
      </label>
      <button type="submit">Open</button>
      {refusal && <p role="alert" class="missing">{refusal}</p>}
    </form>
  );
}

/** Trade the key in the address, if there is one: it must stay in no history, and in no link. */
async function takeKey(): Promise<void> {
  const key = new URLSearchParams(window.location.hash.slice(1)).get("k");
  if (!key) return;
  go(window.location.pathname + window.location.search, true);
  await unlock(key);
}

async function start(): Promise<void> {
  await takeKey();
  window.addEventListener("hashchange", () => void takeKey());
  go(window.location.href.slice(window.location.origin.length), true);
  expand();
  listen(VIEWS);
  tellTimes();
  const root = document.getElementById("page");
  if (root) {
    root.replaceChildren();
    render(<Page />, root);
  }
}

void start();
