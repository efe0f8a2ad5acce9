mod metrics_docs;
