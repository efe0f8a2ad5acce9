mod denials;
mod leases;
