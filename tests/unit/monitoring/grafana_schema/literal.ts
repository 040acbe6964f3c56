// What a dashboard's JSON may hold, from the types that Grafana's own frontend is written in.
import type * as grafana from '@grafana/schema';
import type * as bargauge from '@grafana/schema/dist/esm/raw/composable/bargauge/panelcfg/x/BarGaugePanelCfg_types.gen';
import type * as stat from '@grafana/schema/dist/esm/raw/composable/stat/panelcfg/x/StatPanelCfg_types.gen';
import type * as timeline from '@grafana/schema/dist/esm/raw/composable/statetimeline/panelcfg/x/StateTimelinePanelCfg_types.gen';
import type * as table from '@grafana/schema/dist/esm/raw/composable/table/panelcfg/x/TablePanelCfg_types.gen';
import type * as timeseries from '@grafana/schema/dist/esm/raw/composable/timeseries/panelcfg/x/TimeSeriesPanelCfg_types.gen';

// JSON has an enum's text where TypeScript has the enum.
type Json<T> = T extends string ? `${T}` : T extends object ? { [K in keyof T]: Json<T[K]> } : T;

// Grafana fills in options that are absent, but not the members of those that are there.
interface PanelOf<Kind, Options, Custom> extends Omit<grafana.Panel, 'type' | 'options' | 'fieldConfig'> {
  type: Kind;
  options: Partial<Options>;
  fieldConfig: {
    defaults: Omit<grafana.FieldConfig, 'custom'> & { custom: Partial<Custom> };
    overrides: grafana.FieldConfigSource['overrides'];
  };
}

type Nothing = Record<string, never>;

type Panel =
  | PanelOf<'bargauge', bargauge.Options, Nothing>
  | PanelOf<'stat', stat.Options, Nothing>
  | PanelOf<'state-timeline', timeline.Options, timeline.FieldConfig>
  | PanelOf<'table', table.Options, table.FieldConfig>
  | PanelOf<'timeseries', timeseries.Options, timeseries.FieldConfig>;

// The variable editor saves a definition; the types leave it out.
type Variable = grafana.VariableModel & { definition: string };

export type DashboardJson = Json<
  Omit<grafana.Dashboard, 'panels' | 'templating'> & {
    panels: Array<grafana.RowPanel | Panel>;
    templating: { list: Variable[] };
  }
>;
