"""The pages as Jinja templates; rendered in html.py, always with autoescape."""

_HEAD = """<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{ title }}</title>
<style>
body { font: 15px/1.5 sans-serif; margin: 2rem auto; max-width: 72rem; padding: 0 1rem;
  color: #222; background: #fff; }
table { border-collapse: collapse; margin: .5rem 0 1.5rem; }
th, td { padding: .2rem .8rem; border-bottom: 1px solid #ddd; text-align: right; }
th:first-child, td:first-child { text-align: left; white-space: nowrap; }
.texts td { text-align: left; vertical-align: top; overflow-wrap: anywhere; }
.texts th { text-align: left; } .texts td:nth-child(2) { white-space: nowrap; }
.note { color: #666; } .warn { color: #a33; }
dt { font-weight: bold; } dd { margin: 0 0 .4rem 1rem; }
@media (prefers-color-scheme: dark) { body { color: #ddd; background: #1b1b1b; }
  th, td { border-color: #444; } .note { color: #999; } .warn { color: #f88; } }
</style></head><body>
"""

_TABLE = """
{% macro entries(head, rows) %}
<table><tr><th>{{ head }}</th><th>pairs</th><th>accuracy</th><th>strict</th><th>tied</th>
<th>log-loss</th><th>score gap</th></tr>
{% for name, e in rows %}
<tr><td>{{ name }}</td><td>{{ e.n_pairs }}</td><td>{{ e.accuracy|interval }}</td>
<td>{{ e.accuracy_strict|number }}</td><td>{{ e.n_tied_pred }}</td><td>{{ e.log_loss|number }}</td>
<td>{{ e.score_gap|number }}</td></tr>
{% endfor %}
</table>
{% endmacro %}
"""

_WORST = """
{% macro worst(pairs) %}
<h3>Pairs ranked worst</h3>
<table class="texts"><tr><th>place</th><th>score gap</th><th>prompt</th><th>chosen</th>
<th>rejected</th></tr>
{% for pair in pairs %}
<tr><td>{{ pair.place }}</td><td>{{ pair.score_gap|number }}</td>
<td>{{ '–' if pair.prompt is none else pair.prompt }}</td>
{% for side in (pair.chosen, pair.rejected) %}
<td><b>{{ side.score|number }}</b>{% if side.side is number %} (candidate {{ side.side }})
{%- endif %}<br>{{ '–' if side.response is none else side.response }}</td>
{% endfor %}
</tr>
{% endfor %}
</table>
{% endmacro %}
"""

EVALUATION = (
    "{% set title = 'Evaluation of ' ~ report.streams|join(', ') %}\n"
    + _HEAD
    + _TABLE
    + _WORST
    + """
<h1>{{ title }}</h1>
<p>{{ report.n_rows }} rows{% if report.data %} of
{{ report.data|map(attribute='path')|join(', ') }}{% endif %}; intervals clustered by
{{ report.cluster.column }}
{%- if report.cluster.n_clusters is not none %} ({{ report.cluster.n_clusters }} clusters)
{%- endif %}.</p>
<table><tr><th>stream</th><th>pairs</th><th>accuracy</th><th>strict</th><th>tied</th>
<th>log-loss</th><th>Brier</th><th>ECE</th><th>score gap</th><th>failed</th><th>n.&nbsp;a.</th></tr>
{% for name, f in report.streams.items() %}
<tr><td>{{ name }}</td><td>{{ f.n_pairs }}</td><td>{{ f.accuracy|interval }}</td>
<td>{{ f.accuracy_strict|interval }}</td><td>{{ f.n_tied_pred }}</td>
<td>{{ f.log_loss|interval }}</td><td>{{ f.brier|interval }}</td><td>{{ f.ece|number }}</td>
<td>{{ f.score_gap|interval }}</td><td>{{ f.n_failed }}</td><td>{{ f.n_not_applicable }}</td></tr>
{% endfor %}
</table>
{% if report.comparisons %}
<h2>Comparisons</h2>
<table><tr><th>a, b</th><th>pairs</th><th>accuracy a</th><th>accuracy b</th><th>a − b</th></tr>
{% for c in report.comparisons %}
<tr><td>{{ c.a }}, {{ c.b }}</td><td>{{ c.n_pairs }}</td><td>{{ c.accuracy_a|number }}</td>
<td>{{ c.accuracy_b|number }}</td><td>{{ c.difference|interval }}</td></tr>
{% endfor %}
</table>
{% endif %}
{% for name, f in report.streams.items() %}
<h2>{{ name }}</h2>
<p>{{ f.score_histogram|two_histograms }} {{ f.score_gap_histogram|histogram('score gap') }}
{{ f.reliability|reliability }} {{ f.score_by_length|scatter }}</p>
<p>Temperature {{ f.temperature|number }}; tied labels {{ f.n_tied_label }}.
{% if f.length %}The rule “the longer answer is better” has accuracy
{{ f.length.baseline_accuracy|number }} on {{ f.length.n_pairs }} pairs; on
{{ f.length.near_equal.n_pairs }} pairs of nearly equal length the stream has
{{ f.length.near_equal.accuracy|number }}; score gap and length gap correlate by
{{ f.length.correlation|number }}.{% endif %}</p>
{% if f.ranking %}
<p>{{ f.ranking.n_rows }} ranked rows: Kendall tau-b {{ f.kendall_tau_b|interval }}, Spearman
{{ f.spearman|interval }} ({{ f.ranking.n_undefined }} rows undefined), best of N
{{ f.best_of_n|interval }} (by chance {{ f.ranking.best_of_n_by_chance|number }}).
{% if f.rank_agreement %}Spearman with human scores over {{ f.rank_agreement.n_candidates }}
candidates: {{ f.rank_agreement.spearman|number }}.{% endif %}</p>
{% endif %}
{% if f.datasets %}{{ entries('dataset', f.datasets.table.items()) }}{% endif %}
{% if f.subsets %}{{ entries('subset', f.subsets.table.items()) }}
<p>Accuracy over subsets: macro {{ f.subsets.macro_accuracy|number }}, micro
{{ f.subsets.micro_accuracy|number }}.</p>{% endif %}
{% if f.timesteps %}<table><tr><th>timestep</th><th>pairs</th><th>accuracy</th>
<th>log-loss</th></tr>
{% for e in f.timesteps %}
<tr><td>{{ e.low }} to {{ e.high }}</td><td>{{ e.n_pairs }}</td><td>{{ e.accuracy|interval }}</td>
<td>{{ e.log_loss|number }}</td></tr>
{% endfor %}
</table>{% endif %}
{% if f.worst_pairs %}{{ worst(f.worst_pairs) }}{% endif %}
{% if f.batch_probe %}<p{% if not f.batch_probe.within_tolerance %} class="warn"{% endif %}>
Asked again one by one, {{ f.batch_probe.n_sides }} sides differ by at most
{{ f.batch_probe.max_difference|number }}.</p>{% endif %}
{% if f.swap_probe %}<p{% if not f.swap_probe.adds_up_to_1 %} class="warn"{% endif %}>
With sides swapped, accuracy of {{ f.swap_probe.n_pairs }} pairs goes from
{{ f.swap_probe.accuracy|number }} to {{ f.swap_probe.accuracy_swapped|number }}.</p>{% endif %}
{% if f.reasons %}<p class="note">Not given: {% for figure, why in f.reasons.items() %}
{{ figure }} ({{ why }}){{ '; ' if not loop.last }}{% endfor %}.</p>{% endif %}
{% endfor %}
<h2>How the figures are meant</h2>
<dl>{% for figure, meaning in report.conventions.items() %}
<dt>{{ figure }}</dt><dd>{{ meaning }}</dd>{% endfor %}</dl>
<p class="note">rewardctl {{ version }}</p>
</body></html>"""
)

SCORES = (
    "{% set title = 'Scores of ' ~ scores %}\n"
    + _HEAD
    + """
<h1>{{ title }}</h1>
<p>{{ meta.counts.rows }} rows: {{ meta.counts.ok }} ok, {{ meta.counts.failed }} failed,
{{ meta.counts.nothing_applicable }} with no applicable stream.</p>
{% for name, datasets in streams.items() %}
<h2>{{ name }}</h2>
<table><tr><th>dataset</th><th>scores</th><th>mean</th><th>std</th><th>min</th><th>median</th>
<th>max</th></tr>
{% for dataset, d in datasets.items() %}
<tr><td>{{ dataset }}</td><td>{{ d.n }}</td><td>{{ d.mean|number }}</td>
<td>{{ d.statistics.std|number }}</td><td>{{ d.statistics.min|number }}</td>
<td>{{ d.statistics.median|number }}</td><td>{{ d.statistics.max|number }}</td></tr>
{% endfor %}
</table>
{% for dataset, d in datasets.items() %}
<figure style="display: inline-block; margin: 0 1rem 1rem 0">{{ d.histogram|histogram('score') }}
<figcaption>{{ dataset }}</figcaption></figure>
{% endfor %}
{% endfor %}
{% if meta.counts.failed %}
<h2>Failures</h2>
<table><tr><th>stream</th><th>failed</th><th>by status</th></tr>
{% for name, f in meta.streams.items() if f.failed %}
<tr><td>{{ name }}</td><td>{{ f.failed }}</td>
<td>{% for status, n in f.failed_by_status.items() %}{{ status }} {{ n }}
{% endfor %}</td></tr>
{% endfor %}
</table>
<ul>{% for example in meta.failures.examples %}
<li>{{ example }}</li>{% endfor %}</ul>
<table><tr><th>file</th><th>failed rows</th></tr>
{% for name, n in meta.failures.by_source.items() %}
<tr><td>{{ name }}</td><td>{{ n }}</td></tr>
{% endfor %}
</table>
{% endif %}
<p class="note">rewardctl {{ version }}</p>
</body></html>"""
)
