// The cluster at a glance.
import { useEffect } from "preact/hooks";
import type { Overview } from "../answers";
import { BASE, useFollowed } from "../live";
import { ClassBadge, CLASSES, Count, Gaps, Link, Missing, Names, Same, ShareBar, Since, type Share } from "../parts";
import { go, isFirst, to, toList } from "../route";

/** Where the GPUs of a part are listed. */
const LISTS: Record<string, string> = {
  held: to("reservations"),
  free: toList("map", { color: "free" }),
  stranded: toList("map", { color: "health" }),
  broken: to("health"),
  down: to("health"),
};

export function OverviewView() {
  const { head, value, missing } = useFollowed<Overview>({ topic: "overview", path: "overview" });
  // Who sees her own namespace only wants to know of her own units first.
  const isRestricted = head?.gaps.some((gap) => gap.missing === "pods of other namespaces") ?? false;
  useEffect(() => {
    if (isRestricted && isFirst()) go(to("queue"), true);
  }, [isRestricted]);
  if (!value) return <Missing message={missing} />;
  const { gpus } = value;
  const shares: Share[] = [
    { name: "used", amount: gpus.used, sign: "", style: "used" },
    { name: "held by reservations", amount: gpus.held, sign: "r", style: "held" },
    { name: "free", amount: gpus.free, sign: "", style: "free" },
    { name: "stranded", amount: gpus.stranded, sign: "s", style: "stranded" },
    { name: "broken", amount: gpus.broken, sign: "x", style: "broken" },
    { name: "on nodes that are down", amount: gpus.down, sign: "d", style: "down" },
  ];
  const waiting = CLASSES.filter((name) => value.waiting[name]);
  const units = waiting.reduce((sum, name) => sum + (value.waiting[name] ?? 0), 0);
  return (
    <>
      <Gaps gaps={head?.gaps} />
      <section aria-labelledby="gpus">
        <h2 id="gpus"><Link href={to("map")}>GPUs</Link></h2>
        <ShareBar shares={shares} label={`${gpus.total} GPUs`} tell={(share) => `${share.amount} ${share.name}`} />
        <ul class="legend">
          {shares.map((share) => (
            <li key={share.name}>
              <span class={`key ${share.style}`}>{share.sign}</span>
              <Link href={LISTS[share.style] ?? to("map")}><Count of={share.amount} /></Link> {share.name}
            </li>
          ))}
          <li>of <strong><Count of={gpus.total} /></strong></li>
        </ul>
      </section>
      <section aria-labelledby="waiting">
        <h2 id="waiting">
          <Link href={to("queue")}>{units ? `${units.toLocaleString("en")} waiting` : "Nothing waits"}</Link>
          {units > 0 && <small> {value.waitingPods.toLocaleString("en")} pods</small>}
        </h2>
        <ul class="chips">
          {waiting.map((name) => (
            <li key={name}>
              <Link href={toList("queue", { class: name })}>
                <ClassBadge name={name} /> <Count of={value.waiting[name] ?? 0} />
              </Link>
            </li>
          ))}
        </ul>
      </section>
      <div class="cards">
        <section class="card" aria-labelledby="longest">
          <h2 id="longest"><Link href={to("queue")}>Waits longest</Link></h2>
          {value.longest.length === 0 && <p class="empty">Nothing waits.</p>}
          <ol class="plain">
            {value.longest.map((entry) => (
              <li key={entry.names.join()}>
                <div class="line">
                  <Names kind={entry.kind} names={entry.names} /> <ClassBadge name={entry.class} />
                  <span class="push"><Since at={entry.since} /></span>
                </div>
                <p class="why">{entry.message}</p>
              </li>
            ))}
          </ol>
        </section>
        <section class="card" aria-labelledby="over">
          <h2 id="over"><Link href={to("quotas")}>Over their share</Link></h2>
          {value.over.length === 0 && <p class="empty">No quota uses more than it is entitled to.</p>}
          <ul class="plain">
            {value.over.map((name) => <li key={name}><Link href={to("quotas", name)}>{name}</Link></li>)}
          </ul>
        </section>
        <section class="card" aria-labelledby="sick">
          <h2 id="sick"><Link href={to("health")}>Sick</Link></h2>
          <p class={value.sick ? "big bad" : "empty"}>
            {value.sick ? <Link href={to("health")}><Count of={value.sick} /> to look at</Link> : "All is well."}
          </p>
        </section>
      </div>
      <Same command="koord watch" url={`${BASE}/overview`} />
    </>
  );
}
